package control

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/ca/lifetime"
	"lateen.dev/lateen/internal/translate"
)

// gcPercent is how much garbage there may be before it is collected, in percent of what is in use. Most of what is in use are
// connections, which live long: with 2000 proxies less than half of Go's default saves 150 MB, and little is allocated that would make
// collecting more often expensive.
const gcPercent = 40

// Command is the command line of lateen-control.
func Command() *cobra.Command {
	opts := Options{Version: version()}
	logFormat, logLevel := "text", "info"
	cmd := &cobra.Command{
		Use:           "lateen-control {--kube | --config-dir DIR --data-dir DIR --token-key FILE}",
		Short:         "The control plane of a Lateen mesh",
		Args:          cobra.NoArgs,
		Version:       opts.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := newLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			if err := opts.place(); err != nil {
				return err
			}
			onKube(cmd.Flags(), &opts)
			if err := opts.judge(); err != nil {
				return err
			}
			if _, chosen := os.LookupEnv("GOGC"); !chosen {
				debug.SetGCPercent(gcPercent)
			}
			c, err := New(opts, logger)
			if err != nil {
				return err
			}
			return c.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opts.Kube, "kube", false, "follow a Kubernetes cluster: the one in whose pod it runs, else the one that kubectl would speak to")
	f.StringVar(&opts.Kubeconfig, "kubeconfig", "", "with --kube: file that names the cluster")
	f.StringVar(&opts.KubeContext, "kube-context", "", "with --kube: context of the kubeconfig")
	f.StringVar(&opts.Namespace, "namespace", "", "with --kube: namespace of the control plane itself (default $POD_NAMESPACE, else "+DefaultNamespace+")")
	f.StringVar(&opts.ConfigDir, "config-dir", "", "directory of YAML and JSON manifests to follow")
	f.StringVar(&opts.DataDir, "data-dir", "", "directory that keeps the CA's key and what must be chosen alike after a restart; created with mode 0700")
	f.StringVar(&opts.Listen, "listen", ":15012", "address for proxies: discovery and certificates over TLS")
	f.StringVar(&opts.DebugListen, "debug-listen", "127.0.0.1:15014", "address for metrics, readiness and dumps; with --kube :15014 by default. Whatever the address, all but metrics, readiness and the version is for callers on loopback")
	f.StringVar(&opts.Mesh.TrustDomain, "trust-domain", "cluster.local", "trust domain of the mesh's identities")
	f.StringSliceVar(&opts.Mesh.TrustDomainAliases, "trust-domain-aliases", nil, "further names of the trust domain that policies may mean it by; give node proxies the same as TRUST_DOMAIN_ALIASES")
	f.StringVar(&opts.Mesh.ClusterID, "cluster-id", "Kubernetes", "name of the cluster in workloads' uids")
	f.StringVar(&opts.Mesh.Network, "network", "", "name of the network that the pods share")
	f.StringVar(&opts.Mesh.RootNamespace, "root-namespace", "istio-system", "namespace whose policies hold for the whole mesh")
	f.BoolVar(&opts.Mesh.ServeIstioWaypoints, "serve-istio-waypoints", false, "have this mesh's proxies serve Gateways of class istio-waypoint as well, which nobody else may serve then; those of class lateen-waypoint they serve in any case")
	f.StringVar((*string)(&opts.Mesh.BindWaypoints), "bind-waypoints", string(translate.BindWhenReady), "when connections go through the waypoint that a label asks for: when-ready, once its proxies have acknowledged it, and then until the label says otherwise; or at-once, as long as its Gateway has an address, as Istio does")
	f.BoolVar(&opts.Mesh.AutoAllowWaypoints, "auto-allow-waypoint-policy", false, "have workloads behind a waypoint of this mesh admit its identity by a policy of their own, as Istio's PILOT_AUTO_ALLOW_WAYPOINT_POLICY does; unless other ALLOW policies hold for them they then refuse everybody else")
	f.StringVar(&opts.Mesh.DomainSuffix, "domain-suffix", "cluster.local", "DNS suffix of services")
	f.StringVar(&opts.TokenKey, "token-key", "", "PEM file with the public keys that callers' tokens are signed with")
	f.StringVar(&opts.TokenIssuer, "token-issuer", "lateen-local", "issuer that tokens must name")
	f.StringSliceVar(&opts.NodeProxyAccounts, "node-proxy-accounts", []string{"istio-system/ztunnel"}, "service accounts that may follow the mesh's configuration and get certificates for the pods of their node; with --kube lateen-node of --namespace by default")
	f.StringSliceVar(&opts.OwnIdentityAccounts, "own-identity-accounts", nil, "service accounts (namespace/name) of waypoints, gateways and sidecars: their pods may get a certificate in their own name, whose key they keep; nobody else's may")
	f.DurationVar(&opts.OwnIdentityTTL, "own-identity-ttl", ca.DefaultOwnLifetime, "the most that certificates of --own-identity-accounts live, if --cert-ttl is longer")
	f.StringSliceVar(&opts.Advertise, "advertise", nil, "host names and addresses under which proxies reach the control plane")
	f.StringVar(&opts.RootCertOut, "root-cert-out", "", "file to write the public root certificates to; written again when they change")
	f.StringVar(&opts.Authority.CADir, "ca-dir", "", "directory of a plugged-in CA: ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem; read again when they change. Without it a root is made in --data-dir")
	f.StringVar(&opts.TokenFile, "token-file", "/var/run/secrets/tokens/istio-token", "with --kube: file with the control plane's own service account token, by which other replicas know it; read for each call")
	f.StringVar(&opts.Authority.TakeOver, "take-over", "", "with --kube: istio, to go on with the CA of the Istio in --root-namespace")
	f.StringVar(&opts.Authority.CASigner, "ca-signer", "", "with --kube: name of a Kubernetes signer (example.com/name) that signs in place of a CA of the mesh's own")
	f.StringVar(&opts.Authority.CASignerRoot, "ca-signer-root", "configmap/lateen-signer-root/ca.crt", "with --ca-signer: what holds the signer's root certificates, in --namespace: configmap/NAME/KEY or secret/NAME/KEY")
	f.BoolVar(&opts.Authority.CASignerApprove, "ca-signer-approve", false, "with --ca-signer: approve the requests once the caller's right to the identity is proven; without it another program must")
	f.DurationVar(&opts.Authority.RotationLeastStage, "root-rotation-least-stage", 2*time.Minute, "how long each stage of replacing the root takes at least: the time that the file of --root-cert-out, or the ConfigMap, needs to reach its readers")
	f.DurationVar(&opts.CertTTL, "cert-ttl", 24*time.Hour, "lifetime of workload certificates, and the most that a caller may ask for")
	f.DurationVar(&opts.MinCertTTL, "min-cert-ttl", 2*time.Second, "shortest lifetime of a workload certificate that a caller may ask for")
	f.StringVar(&logFormat, "log-format", logFormat, "text or json")
	f.StringVar(&logLevel, "log-level", logLevel, "debug, info, warn or error")
	cmd.AddCommand(rotateRoot())
	return cmd
}

// judge refuses flags that no certificate could be issued by, or that would list nobody without a word.
func (o Options) judge() error {
	if err := lifetime.Judge("--cert-ttl", o.CertTTL, "--min-cert-ttl", o.MinCertTTL); err != nil {
		return err
	}
	if err := lifetime.JudgeOwn("--own-identity-ttl", o.OwnIdentityTTL); err != nil {
		return err
	}
	if o.Mesh.BindWaypoints != "" && o.Mesh.BindWaypoints != translate.BindWhenReady && o.Mesh.BindWaypoints != translate.BindAtOnce {
		return fmt.Errorf("--bind-waypoints is %q; use %s or %s", o.Mesh.BindWaypoints, translate.BindWhenReady, translate.BindAtOnce)
	}
	for flag, accounts := range map[string][]string{"--node-proxy-accounts": o.NodeProxyAccounts, "--own-identity-accounts": o.OwnIdentityAccounts} {
		for _, account := range accounts {
			if namespace, name, two := strings.Cut(account, "/"); !two || namespace == "" || name == "" || strings.Contains(name, "/") {
				return fmt.Errorf("%s has %q; write NAMESPACE/NAME of a service account", flag, account)
			}
		}
	}
	return nil
}

// onKube fills in what is different on Kubernetes where nobody asked for something else.
func onKube(f *pflag.FlagSet, opts *Options) {
	if !opts.Kube {
		return
	}
	opts.Namespace = cmp.Or(opts.Namespace, os.Getenv("POD_NAMESPACE"), DefaultNamespace)
	if !f.Changed("debug-listen") {
		opts.DebugListen = ":15014"
	}
	if !f.Changed("node-proxy-accounts") {
		opts.NodeProxyAccounts = []string{opts.Namespace + "/lateen-node"}
	}
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level is %q; use debug, info, warn or error", level)
	}
	opts.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format is %q; use text or json", format)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
