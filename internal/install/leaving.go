package install

import (
	"context"
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"lateen.dev/lateen/internal/engine/api"
)

// existence is whether anything can be made in a namespace.
type existence int

const (
	namespaceGone existence = iota
	// namespaceGoes says that it is being removed: what is in it goes, nothing can be made there, and nobody can take that back.
	namespaceGoes
	namespaceStays
)

// namespaces tells which namespaces are there, which are being removed, and what is in them.
type namespaces struct {
	objects   objects
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	server    apiServer
}

func (c *Cluster) namespaces() namespaces {
	return namespaces{objects: c.objects(), dynamic: c.Dynamic, discovery: c.Client.Discovery(), server: apiServer(c.Host)}
}

func (c namespaces) stays(ctx context.Context, namespace string) (existence, error) {
	live, err := c.objects.get(ctx, named("Namespace", "", namespace))
	switch {
	case err != nil:
		return namespaceGone, err
	case live == nil:
		return namespaceGone, nil
	case live.GetDeletionTimestamp() != nil:
		return namespaceGoes, nil
	}
	return namespaceStays, nil
}

// lasting refuses to change anything while a namespace that is needed is being removed.
func (c namespaces) lasting(ctx context.Context, namespaces ...string) error {
	for _, n := range namespaces {
		if stays, err := c.stays(ctx, n); err != nil {
			return err
		} else if stays == namespaceGoes {
			return Leaving(n)
		}
	}
	return nil
}

// Leaving is what keeps an installation from a namespace that is being removed.
func Leaving(namespace string) *api.Error {
	return &api.Error{Code: 409, Message: fmt.Sprintf("namespace %s is being removed: nothing can be made in it until it is gone", namespace),
		Fix: fmt.Sprintf("kubectl wait --for=delete namespace/%s, and then the command again; kubectl describe namespace %s says what keeps it", namespace, namespace)}
}

// settled waits until no namespace that an installation needs is being removed.
func (c namespaces) settled(ctx context.Context, o Options) error {
	namespaces := []string{o.Namespace, rootNamespace(o.Values)}
	if o.DryRun {
		return c.lasting(ctx, namespaces...)
	}
	for _, n := range namespaces {
		stays, err := c.stays(ctx, n)
		if err != nil {
			return err
		}
		if stays != namespaceGoes {
			continue
		}
		o.started("namespaces", "waiting until namespace %s, which is being removed, is gone", n)
		if err := c.gone(ctx, n); err != nil {
			return err
		}
		o.done("namespaces", "namespace %s is gone", n)
	}
	return nil
}

// gone waits until a namespace that is being removed is gone.
func (c namespaces) gone(ctx context.Context, namespace string) error {
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		stays, err := c.stays(ctx, namespace)
		return stays == namespaceGone, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("namespace %s is not gone yet: %w; kubectl describe namespace %s says what keeps it, and the command can be repeated to go on", namespace, err, namespace)
	}
	return err
}
