package control

import (
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// Command is the command line of lateen-control.
func Command() *cobra.Command {
	opts := Options{Version: version()}
	logFormat, logLevel := "text", "info"
	cmd := &cobra.Command{
		Use:           "lateen-control --config-dir DIR --data-dir DIR --token-key FILE",
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
			if opts.CertTTL < 2*time.Second || opts.CertTTL > 90*24*time.Hour {
				return fmt.Errorf("--cert-ttl is %s; use 2s to 2160h", opts.CertTTL)
			}
			if opts.MinCertTTL < time.Second || opts.MinCertTTL > opts.CertTTL {
				return fmt.Errorf("--min-cert-ttl is %s; use 1s to --cert-ttl, which is %s", opts.MinCertTTL, opts.CertTTL)
			}
			c, err := New(opts, logger)
			if err != nil {
				return err
			}
			return c.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.ConfigDir, "config-dir", "", "directory of YAML and JSON manifests to follow")
	f.StringVar(&opts.DataDir, "data-dir", "", "directory that keeps the CA's key and what must be chosen alike after a restart; created with mode 0700")
	f.StringVar(&opts.Listen, "listen", ":15012", "address for proxies: discovery and certificates over TLS")
	f.StringVar(&opts.DebugListen, "debug-listen", "127.0.0.1:15014", "address for metrics, readiness and dumps; has no access control")
	f.StringVar(&opts.Mesh.TrustDomain, "trust-domain", "cluster.local", "trust domain of the mesh's identities")
	f.StringSliceVar(&opts.Mesh.TrustDomainAliases, "trust-domain-aliases", nil, "further names of the trust domain that policies may mean it by; give node proxies the same as TRUST_DOMAIN_ALIASES")
	f.StringVar(&opts.Mesh.ClusterID, "cluster-id", "Kubernetes", "name of the cluster in workloads' uids")
	f.StringVar(&opts.Mesh.Network, "network", "", "name of the network that the pods share")
	f.StringVar(&opts.Mesh.RootNamespace, "root-namespace", "istio-system", "namespace whose policies hold for the whole mesh")
	f.StringVar(&opts.Mesh.DomainSuffix, "domain-suffix", "cluster.local", "DNS suffix of services")
	f.StringVar(&opts.TokenKey, "token-key", "", "PEM file with the public keys that callers' tokens are signed with")
	f.StringVar(&opts.TokenIssuer, "token-issuer", "lateen-local", "issuer that tokens must name")
	f.StringSliceVar(&opts.NodeProxyAccounts, "node-proxy-accounts", []string{"istio-system/ztunnel"}, "service accounts that may follow the mesh's configuration and get certificates for the pods of their node")
	f.StringSliceVar(&opts.Advertise, "advertise", nil, "host names and addresses under which proxies reach the control plane")
	f.StringVar(&opts.RootCertOut, "root-cert-out", "", "file to write the public root certificates to; written again when they change")
	f.StringVar(&opts.CADir, "ca-dir", "", "directory of a plugged-in CA: ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem; read again when they change. Without it a root is made in --data-dir")
	f.DurationVar(&opts.RotationLeastStage, "root-rotation-least-stage", 2*time.Minute, "how long each stage of replacing the root takes at least: the time that the file of --root-cert-out needs to reach its readers")
	f.DurationVar(&opts.CertTTL, "cert-ttl", 24*time.Hour, "lifetime of workload certificates, and the most that a caller may ask for")
	f.DurationVar(&opts.MinCertTTL, "min-cert-ttl", 2*time.Second, "shortest lifetime of a workload certificate that a caller may ask for")
	f.StringVar(&logFormat, "log-format", logFormat, "text or json")
	f.StringVar(&logLevel, "log-level", logLevel, "debug, info, warn or error")
	for _, required := range []string{"config-dir", "data-dir", "token-key"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	cmd.AddCommand(rotateRoot())
	return cmd
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
