// Package cluster owns what the control plane keeps and asks in a Kubernetes cluster: whose a token is, the CA's key, the root certificates
// in every namespace, who of several replicas leads, and what all of them must choose alike. It watches no configuration and serves no proxy.
package cluster

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Options are what the parts in a cluster depend on.
type Options struct {
	// Config leads to the API server.
	Config *rest.Config
	// Namespace is that of the control plane, Identity a name of this replica that no other one has.
	Namespace, Identity string
	TrustDomain         string
	// Lifetime is the longest that certificates live, LeastStage how long a stage of a root's rotation takes at least.
	Lifetime, LeastStage time.Duration
	// Istio is the namespace of an Istio to take over from, empty if there is none.
	Istio string
	// Signer is the name of a Kubernetes signer to sign with, empty for a CA of one's own; SignerRoot holds its roots, and SignerApprove has
	// requests approved here.
	Signer        string
	SignerRoot    Reference
	SignerApprove bool
	// Proxies are the service accounts ("namespace/name") of node proxies.
	Proxies map[string]bool
	Now     func() time.Time
	Logger  *slog.Logger
}

// Cluster is what a replica of the control plane has in a cluster.
type Cluster struct {
	Tokens    *Tokens
	Authority *Authority
	Roots     *Roots
	Leader    *Leader
	// Assignments keeps virtual addresses; its For must be called before Run.
	Assignments *Assignments
}

// Run does what a replica does beside answering, until ctx ends: it takes part in the election, and follows what others choose.
func (c *Cluster) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.Leader.Run(ctx) })
	running.Go(func() { c.Assignments.Run(ctx) })
	running.Wait()
}

// New sets up the parts; it asks nothing yet. Tokens, the election and requests for certificates have clients of their own, for they must not
// wait behind each other nor behind anything else.
func New(opts Options) (*Cluster, error) {
	skew := &skew{now: opts.Now}
	config := rest.CopyConfig(opts.Config)
	config.Wrap(skew.watch)
	var apart [4]kubernetes.Interface
	for i := range apart {
		var err error
		if apart[i], err = clients.Typed(config); err != nil {
			return nil, err
		}
	}
	client := apart[0]
	// Those of the control plane ask one another, and node proxies keep the mesh going: their places are not for others.
	own := func(account string) bool {
		return opts.Proxies[account] || account == opts.Namespace+"/"+ownAccount
	}
	c := &Cluster{Tokens: NewTokens(apart[1].AuthenticationV1().TokenReviews(), own, opts.Now, opts.Logger),
		Roots:  NewRoots(client, opts.Namespace, opts.Istio, opts.Logger),
		Leader: NewLeader(apart[2], opts.Namespace, opts.Identity, opts.Logger)}
	c.Authority = NewAuthority(AuthorityOptions{Client: client, SignerClient: apart[3], Skew: skew.Ahead, Namespace: opts.Namespace, TrustDomain: opts.TrustDomain, Lifetime: opts.Lifetime, LeastStage: opts.LeastStage,
		Istio: opts.Istio, SignerName: opts.Signer, SignerRoot: opts.SignerRoot, Approve: opts.SignerApprove, Leads: c.Leader.Leads, Roots: c.Roots, Now: opts.Now, Logger: opts.Logger})
	c.Assignments = NewAssignments(client, opts.Namespace, opts.Now, opts.Logger)
	c.Leader.While(c.Roots.Run)
	c.Leader.While(c.Assignments.Prune)
	c.Leader.While(c.Authority.Sweep)
	return c, nil
}

// Identity is a name for a replica that no other one has, not even the one that had its pod's name before.
func Identity() string {
	name, err := os.Hostname()
	if err != nil {
		name = "lateen-control"
	}
	return fmt.Sprintf("%s-%s", cmp.Or(os.Getenv("POD_NAME"), name), strings.ToLower(cryptorand.Text()[:6]))
}

// Labels of all objects that this package makes. componentLabel with component marks an object as this control plane's.
const (
	nameLabel      = wellknown.AppName
	componentLabel = wellknown.Component
	partOfLabel    = wellknown.PartOf
	lateen         = "lateen"
	component      = "control"
	// ownAccount is the name of the control plane's service account.
	ownAccount = "lateen-control"
	// fieldManager is how the API server remembers whose a field is.
	fieldManager = "lateen-control"
)

func labels() map[string]string { return labelsOf(component) }

func labelsOf(component string) map[string]string {
	return map[string]string{nameLabel: lateen, componentLabel: component, partOfLabel: lateen}
}

func ours(labels map[string]string) bool { return labels[nameLabel] == lateen }

// retry calls f until it says that it is done or ctx ends, with growing pauses. Each reason is told once, and that it is over.
func retry(ctx context.Context, logger *slog.Logger, what string, f func() error) error {
	backoff, told := kube.Backoff(), ""
	for {
		err := f()
		if err == nil {
			if told != "" {
				logger.Info("cluster: "+what+" works again", "after", told)
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if text := kube.Cause(err); text != told {
			logger.Error("cluster: "+what+" failed; it is tried again", "error", text)
			told = text
		}
		if !kube.Sleep(ctx, backoff.Step()) {
			return err
		}
	}
}

// jittered is d, up to a quarter longer or shorter, so that replicas do not act in step.
func jittered(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // no secret
}
