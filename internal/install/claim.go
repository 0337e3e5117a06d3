package install

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"lateen.dev/lateen/internal/engine/api"
)

// claim makes what an installation is found by, of which a cluster has one, if nobody else has. Leases do not tell first installations into
// different namespaces of each other, and to apply it by force, as all else, would take it from the other one.
func (i *Installation) claim(ctx context.Context) error {
	c := i.cluster
	for _, s := range i.Plan.Steps {
		if !isAnchor(s) {
			continue
		}
		client, err := c.objects().of(s.object)
		if err != nil {
			return err
		}
		var claimed *unstructured.Unstructured
		if s.Action == Create {
			claimed, err = client.Create(ctx, s.object, metav1.CreateOptions{FieldManager: fieldManager})
		} else {
			claimed, err = c.objects().get(ctx, s.object)
		}
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return c.explain(err)
			}
			if err := asApplied(ctx, client, claimed); err != nil {
				return c.explain(err)
			}
			continue
		}
		now, err := c.Find(ctx)
		switch {
		case err != nil:
			return err
		case now == nil || now.Namespace == i.options.Namespace:
			return meanwhile(i.options.Namespace)
		}
		return c.elsewhere(ctx, now)
	}
	return nil
}

// asApplied has an object that was created be as if it had been applied. Else its fields belong to a creation that never comes back, and what a later
// version does not apply any more would stay.
func asApplied(ctx context.Context, client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	if o == nil {
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(o, sets.New(fieldManager), fieldManager)
	if err != nil || patch == nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody has written meanwhile; the next run does it
	}
	return err
}

// unmake removes the namespace that this command made for an installation, if another one in another namespace has preceded it. One in which
// anybody has put anything stays, and so does one that cannot be removed: it is empty but for that.
func (i *Installation) unmake(ctx context.Context) {
	if now, err := i.cluster.Find(ctx); err != nil || now == nil || now.Namespace == i.options.Namespace {
		return
	}
	for _, s := range i.Plan.Steps {
		if s.Kind != "Namespace" || s.Name != i.options.Namespace || s.Action != Create {
			continue
		}
		if what, err := i.cluster.namespaces().inUse(ctx, s.Name, nil); err == nil && what == "" {
			_ = i.cluster.objects().remove(ctx, s.object)
		}
	}
}

// elsewhere refuses an installation beside one that is in another namespace, or is just being made or removed there.
func (c *Cluster) elsewhere(ctx context.Context, r *Record) error {
	upgrade, uninstall := "lateen upgrade --namespace "+r.Namespace, "lateen uninstall --namespace "+r.Namespace
	by := c.atWork(ctx, r.Namespace)
	refused := &api.Error{Code: 409}
	switch {
	case r.Helm:
		return r.ofHelm("go on with helm upgrade, or remove it with helm uninstall first")
	case r.Bare:
		return r.bare()
	case by != "":
		refused.Message = fmt.Sprintf("another command is changing Lateen in namespace %s, and a cluster has one mesh: %s", r.Namespace, by)
		refused.Fix = fmt.Sprintf("wait until it has ended; then change that mesh with %s, or remove it with %s before you install another", upgrade, uninstall)
	case r.State == stateInstalling:
		refused.Message = fmt.Sprintf("the installation of Lateen %s in namespace %s was begun and not ended, and a cluster has one mesh", r.Version, r.Namespace)
		refused.Fix = fmt.Sprintf("end it with lateen install --namespace %s, or remove what there is with %s", r.Namespace, uninstall)
	case r.State == stateUninstalling:
		refused.Message = fmt.Sprintf("the removal of Lateen %s from namespace %s was begun and not ended, and a cluster has one mesh", r.Version, r.Namespace)
		refused.Fix = fmt.Sprintf("end it with %s, and repeat the command", uninstall)
	default:
		refused.Message = fmt.Sprintf("Lateen %s is installed in namespace %s already, and a cluster has one mesh", r.Version, r.Namespace)
		refused.Fix = fmt.Sprintf("change it with %s, or remove it with %s before you install another", upgrade, uninstall)
	}
	return refused
}

// silence is how long the holder of a Lease may give no sign of life before it is not said to be at work any more: one that was killed leaves its
// Lease behind. Clocks that differ change what is said, and nothing that is done.
const silence = 5 * time.Minute

// atWork says which command holds an installation's Lease; empty if none does, or that cannot be told.
func (c *Cluster) atWork(ctx context.Context, namespace string) string {
	l, err := c.Client.CoordinationV1().Leases(namespace).Get(ctx, lockName, metav1.GetOptions{})
	if err != nil || l.Spec.RenewTime != nil && time.Since(l.Spec.RenewTime.Time) > silence {
		return ""
	}
	return deref(l.Spec.HolderIdentity)
}
