package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/kube"
	"lateen.dev/lateen/internal/install"
	corekube "lateen.dev/lateen/internal/kube"
)

// The values of LATEEN_ENGINE, which chooses the mesh that the commands are about.
const (
	engineLocal      = "local"      // the mesh on this machine
	engineKubernetes = "kubernetes" // that of the cluster which the kubeconfig names
	engineAuto       = "auto"       // the former if it runs or the user named it, else the latter if there is one
)

// findPatience is how long a cluster may take to say whether it has a mesh, where nobody said that it has.
const findPatience = 5 * time.Second

// choice is the user's, or auto.
func (a *app) choice() (string, error) {
	said := ""
	if a.Getenv != nil {
		said = a.Getenv("LATEEN_ENGINE")
	}
	switch said {
	case engineLocal, engineKubernetes:
		return said, nil
	case "", engineAuto:
		if a.kubeconfig != "" || a.kubeContext != "" {
			return engineKubernetes, nil
		}
		return engineAuto, nil
	}
	return "", usagef("LATEEN_ENGINE is %q; use local, kubernetes or auto", said)
}

// client returns a client for the mesh that the user means. Which that is shows when it is asked something.
func (a *app) client() *api.Client {
	unchosen := a.choose()
	local := a.Connect(a.mesh)
	var find sync.Once
	var cluster *kube.Engine
	var missing error
	return api.NewOver(a.mesh, func(ctx context.Context) (net.Conn, error) {
		choice, err := a.choice()
		if err != nil {
			return nil, err
		}
		if choice != engineKubernetes {
			if unchosen != nil {
				return nil, unchosen
			}
			conn, err := local.Dial(ctx)
			err = a.explained(err)
			// A name is that of a mesh of this machine: a mistyped one must not change a cluster.
			if err == nil || choice == engineLocal || a.chosen.named || !errors.Is(err, api.ErrNotRunning) {
				return conn, err
			}
			missing = err
		}
		find.Do(func() {
			found, err := a.clusterEngine(ctx, choice == engineAuto)
			switch {
			case err == nil:
				cluster = found
				a.reachedCluster.Store(true)
			case missing == nil:
				missing = err
			case !errors.Is(err, corekube.ErrNoCluster) && !errors.Is(err, api.ErrNotRunning):
				missing = fmt.Errorf("%w; nor does a mesh of the cluster that the kubeconfig names answer: %w", missing, err)
			}
		})
		if cluster == nil {
			return nil, missing
		}
		return cluster.Connect(ctx)
	})
}

// clusterEngine is the mesh of the cluster that the kubeconfig names. Where it is only tried, a cluster that does not answer is not waited for.
func (a *app) clusterEngine(ctx context.Context, try bool) (*kube.Engine, error) {
	if a.Cluster == nil {
		return nil, api.ErrNotRunning
	}
	c, err := a.Cluster(a.kubeconfig, a.kubeContext)
	if err != nil {
		return nil, err
	}
	if try {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, findPatience)
		defer cancel()
	}
	record, err := c.Find(ctx)
	if errors.Is(err, context.DeadlineExceeded) && try {
		return nil, silent(c)
	} else if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, &api.Error{Code: 404, Message: "Lateen is not installed on the cluster at " + c.Host, Fix: "lateen install" + (installCommands{a}).clusterFlags()}
	}
	return engineOf(c, record), nil
}

// silent is what is said of a cluster that takes too long to say whether it has a mesh.
func silent(c *install.Cluster) error {
	return &api.Error{Code: 504, Message: fmt.Sprintf("the API server at %s did not answer within %s", c.Host, findPatience),
		Fix: "see that the cluster runs and that this machine reaches it (kubectl cluster-info), or choose with LATEEN_ENGINE=local or --context"}
}

func engineOf(c *install.Cluster, record *install.Record) *kube.Engine {
	e := &kube.Engine{Client: c.Client, Dynamic: c.Dynamic, Namespace: record.Namespace, Version: record.Version, Host: c.Host}
	if c.Config != nil {
		e.Dial = kube.Forward(c.Config, c.Client)
	}
	return e
}
