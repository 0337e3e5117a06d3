package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/control/cluster"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model"
	kubesource "lateen.dev/lateen/internal/source/kube"
	"lateen.dev/lateen/internal/status"
)

// DefaultNamespace is where a control plane on Kubernetes is, if nothing says otherwise.
const DefaultNamespace = "lateen-system"

// onKubernetes is a control plane that follows a cluster and keeps its state there.
func onKubernetes(opts Options, store *model.Store, metrics *status.Metrics, now func() time.Time, logger *slog.Logger) (parts, error) {
	kube.Log(logger)
	cfg, err := kube.Config(opts.Kubeconfig, opts.KubeContext)
	if err != nil {
		return parts{}, err
	}
	source, err := kubesource.New(kubesource.Options{Config: cfg, Logger: logger, Observer: metrics, RootNamespace: opts.Mesh.RootNamespace})
	if err != nil {
		return parts{}, err
	}
	shared := cluster.Options{Config: cfg, Namespace: opts.Namespace, Identity: cluster.Identity(), TrustDomain: opts.Mesh.TrustDomain, Lifetime: opts.CertTTL, LeastStage: opts.Authority.RotationLeastStage,
		Signer: opts.Authority.CASigner, SignerApprove: opts.Authority.CASignerApprove, Proxies: set(opts.NodeProxyAccounts), Now: now, Logger: logger}
	if opts.Authority.TakeOver != "" {
		shared.Istio = opts.Mesh.RootNamespace
	}
	if opts.Authority.CASigner != "" {
		if shared.SignerRoot, err = cluster.ParseReference(opts.Authority.CASignerRoot); err != nil {
			return parts{}, fmt.Errorf("--ca-signer-root: %w", err)
		}
	}
	c, err := cluster.New(shared)
	if err != nil {
		return parts{}, err
	}
	metrics.RegisterLeader(c.Leader.Leads)
	return parts{source: source, authority: c.Authority, verifier: c.Tokens, assignments: compile.ShareAssignments(c.Assignments, cluster.MaxAddresses), kept: c.Assignments, compiled: func(compiler *compile.Compiler) { c.Assignments.For(compiler) }, tasks: []func(context.Context){c.Run},
		place: "namespace " + opts.Namespace, replicas: &replicas{config: cfg, source: source, while: c.Leader.While}}, nil
}
