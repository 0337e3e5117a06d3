package deployer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"lateen.dev/lateen/internal/control/cluster"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
)

// Lease is the name of the Lease that the leader holds.
const Lease = "lateen-deployer"

// flags are those of the command.
type flags struct {
	options                                    Options
	kubeconfig, kubeContext, namespace, listen string
	pullPolicy, logFormat, logLevel            string
	requests, limits                           map[string]string
}

// Command is the command line of the deployer, a verb of lateen-control.
func Command() *cobra.Command {
	f := flags{pullPolicy: string(corev1.PullIfNotPresent), logFormat: "text", logLevel: "info"}
	cmd := &cobra.Command{
		Use: "deployer --image IMAGE --control URL", Short: "Deploys waypoints: makes the objects of their Gateways in a Kubernetes cluster",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs, s := cmd.Flags(), &f.options.Settings
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file that names the cluster; without it the one in whose pod it runs")
	fs.StringVar(&f.kubeContext, "kube-context", "", "context of the kubeconfig")
	fs.StringVar(&f.namespace, "namespace", "", "namespace of the deployer itself, which has its Lease (default $POD_NAMESPACE, else lateen-system)")
	fs.StringVar(&f.listen, "debug-listen", ":15014", "address for metrics and readiness")
	fs.StringSliceVar(&f.options.Namespaces, "namespaces", nil, "namespaces whose Gateways are deployed (default: all)")
	fs.StringSliceVar(&f.options.DefaultsFrom, "defaults-from", nil, "namespaces of the ConfigMaps that change all waypoints of a class (default: that of the deployer)")
	fs.BoolVar(&f.options.IstioClass, "istio-class", false, "deploy Gateways of Istio's class istio-waypoint as well")
	fs.StringVar(&f.options.IstioNamespace, "istio-namespace", "istio-system", "namespace of Istio's control plane, which deploys the Gateways of that class as long as it runs")
	fs.StringVar(&s.Image, "image", "", "image of the proxy")
	fs.StringVar(&f.pullPolicy, "image-pull-policy", f.pullPolicy, "Always, IfNotPresent or Never")
	fs.StringSliceVar(&s.PullSecrets, "image-pull-secrets", nil, "Secrets with credentials for the registry, in the namespace of each waypoint")
	fs.StringVar(&s.Control, "control", "", "URL of the control plane")
	fs.StringVar(&s.TrustDomain, "trust-domain", "cluster.local", "trust domain of the mesh's identities")
	fs.StringSliceVar(&s.TrustDomainAliases, "trust-domain-aliases", nil, "further names of the trust domain")
	fs.StringVar(&s.ClusterID, "cluster-id", "Kubernetes", "name of the cluster in telemetry")
	fs.StringVar(&s.Network, "network", "", "name of the network that the pods share")
	fs.StringVar(&s.ClusterDomain, "domain-suffix", "cluster.local", "DNS suffix of services")
	fs.StringVar(&s.Version, "version-label", "", "version of the proxy, as the pods' label app.kubernetes.io/version says it")
	fs.Int64Var(&s.TerminationGraceSeconds, "drain-seconds", 60, "seconds that the connections of a waypoint that is replaced may go on")
	fs.StringToStringVar(&f.requests, "requests", nil, "resource requests of a proxy, such as cpu=100m,memory=64Mi")
	fs.StringToStringVar(&f.limits, "limits", nil, "resource limits of a proxy")
	fs.StringVar(&f.logFormat, "log-format", f.logFormat, "text or json; of the deployer and its waypoints")
	fs.StringVar(&f.logLevel, "log-level", f.logLevel, "debug, info, warn or error; of the deployer and its waypoints")
	return cmd
}

// judge refuses what no waypoint could run with.
func (f *flags) judge() error {
	s := &f.options.Settings
	if s.Image == "" {
		return errors.New("--image is missing; name the image of the proxy")
	}
	if s.Control == "" {
		return errors.New("--control is missing; name the URL of the control plane, such as https://lateen-control.lateen-system.svc:15012")
	}
	switch s.PullPolicy = corev1.PullPolicy(f.pullPolicy); s.PullPolicy {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return fmt.Errorf("--image-pull-policy is %q; use Always, IfNotPresent or Never", f.pullPolicy)
	}
	for _, list := range []struct {
		flag string
		from map[string]string
		to   *corev1.ResourceList
	}{{"--requests", f.requests, &s.Resources.Requests}, {"--limits", f.limits, &s.Resources.Limits}} {
		for name, text := range list.from {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return fmt.Errorf("%s has %s=%s: %w; write it as in cpu=100m,memory=64Mi", list.flag, name, text, err)
			}
			if *list.to == nil {
				*list.to = corev1.ResourceList{}
			}
			(*list.to)[corev1.ResourceName(name)] = quantity
		}
	}
	s.LogLevel, s.LogFormat = f.logLevel, f.logFormat
	f.namespace = cmp.Or(f.namespace, os.Getenv("POD_NAMESPACE"), "lateen-system")
	if len(f.options.DefaultsFrom) == 0 {
		f.options.DefaultsFrom = []string{f.namespace}
	}
	return nil
}

func (f *flags) run(cmd *cobra.Command) error {
	if err := f.judge(); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level is %q; use debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), options)
	if f.logFormat == "json" {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	} else if f.logFormat != "text" {
		return fmt.Errorf("--log-format is %q; use text or json", f.logFormat)
	}
	o := f.options
	o.Logger, o.Now = slog.New(handler), time.Now
	kube.Log(o.Logger)
	if _, chosen := os.LookupEnv("GOGC"); !chosen {
		debug.SetGCPercent(50) // it does little and should be small
	}
	config, err := kube.Config(f.kubeconfig, f.kubeContext)
	if err != nil {
		return err
	}
	if o.Client, err = clients.Dynamic(config); err != nil {
		return err
	}
	elections, err := clients.Typed(config)
	if err != nil {
		return err
	}
	d := New(o)
	leader := cluster.NewLeader(elections, f.namespace, cluster.Identity(), o.Logger).Named(Lease, "deployer")
	leader.While(d.Lead)
	ready := func() error { return d.ready(leader.Leads()) }
	d.metrics.observe(leader.Leads, ready)
	return serve(cmd.Context(), f.listen, d.metrics.registry, ready, leader.Run)
}

// ready says why the deployer does nothing although it leads.
func (d *Deployer) ready(leads bool) error {
	if leads && !d.synced.Load() {
		return errors.New("the cluster's Gateways have not been read yet")
	}
	return nil
}

// serve runs until ctx ends. Meanwhile it answers whether the program is ready, and what it counts.
func serve(ctx context.Context, address string, registry *prometheus.Registry, ready func() error, run func(context.Context)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --debug-listen", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with the program
	run(ctx)
	return server.Close()
}
