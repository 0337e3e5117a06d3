package deployer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// leases are those by which the replicas of an istiod elect the one that deploys Gateways.
var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

const (
	// istioManager is how the API server remembers which fields Istio's controller of Gateways applied.
	istioManager = wellknown.IstioGatewayController
	// istioElection begins the name of the Lease of that controller. Each revision of istiod has its own.
	istioElection = "istio-gateway-deployment"
	// istiodLabel has the value istiodName on the Deployments of all revisions of istiod.
	istiodLabel, istiodName = "app", "istiod"
)

// istioAtWork says why Istio's controller may apply the objects of its Gateways at present; empty if it is gone. Two controllers that apply
// the same objects would take the fields from each other again and again. With an error nobody can tell whether it runs: the text says what is to
// be done about that, and is empty if the API server is away, which passes.
func (d *Deployer) istioAtWork(ctx context.Context) (string, error) {
	found, err := d.Client.Resource(deployments).Namespace(d.IstioNamespace).List(ctx, metav1.ListOptions{LabelSelector: istiodLabel + "=" + istiodName})
	if err != nil {
		return d.untold(deployments, err)
	}
	for i := range found.Items {
		var istiod appsv1.Deployment
		if err := convert(&found.Items[i], &istiod); err != nil {
			return d.unread(&found.Items[i], err)
		}
		if istiod.Spec.Replicas == nil || *istiod.Spec.Replicas > 0 || istiod.Status.Replicas > 0 {
			return fmt.Sprintf("Deployment %s/%s runs Istio's controller", istiod.Namespace, istiod.Name), nil
		}
	}
	// An istiod outside of the cluster has no Deployment here, and takes part in the election all the same.
	held, err := d.Client.Resource(leases).Namespace(d.IstioNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return d.untold(leases, err)
	}
	for i := range held.Items {
		if !strings.HasPrefix(held.Items[i].GetName(), istioElection) {
			continue
		}
		var lease coordinationv1.Lease
		if err := convert(&held.Items[i], &lease); err != nil {
			return d.unread(&held.Items[i], err)
		}
		if holder := holderOf(&lease, d.Now()); holder != "" {
			return fmt.Sprintf("Lease %s/%s is held by %s, which runs Istio's controller", lease.Namespace, lease.Name, holder), nil
		}
	}
	return "", nil
}

// untold says that nobody can tell whether Istio's controller runs, since a kind cannot be listed. The reason is empty if the API server is away.
func (d *Deployer) untold(of schema.GroupVersionResource, err error) (string, error) {
	what := "whether Istio's controller runs in namespace " + d.IstioNamespace + " cannot be told"
	failed := fmt.Errorf("%s: %w", what, err)
	if kube.Away(err) || errors.Is(err, context.Canceled) {
		return "", failed
	}
	return what + ": " + cmp.Or(kube.Refusal(err, of.Group, of.Resource, "list"), kube.Cause(err)), failed
}

// unread says that nobody can tell whether Istio's controller runs, since an object that would show it cannot be read.
func (d *Deployer) unread(u *unstructured.Unstructured, err error) (string, error) {
	failed := fmt.Errorf("whether Istio's controller runs in namespace %s cannot be told: read %s %s/%s: %w", d.IstioNamespace, u.GetKind(), u.GetNamespace(), u.GetName(), err)
	return failed.Error(), failed
}

// holderOf is who holds a Lease now; empty if it was given back, or has not been renewed in time.
func holderOf(lease *coordinationv1.Lease, now time.Time) string {
	l := lease.Spec
	if l.HolderIdentity == nil || l.RenewTime == nil || l.LeaseDurationSeconds == nil || now.After(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second)) {
		return ""
	}
	return *l.HolderIdentity
}

// ofIstiosClass says whether a Gateway is one that Istio's controller deploys where it runs. Of any other controller's class it keeps off,
// also of a Gateway that it deployed before the class was changed.
func ofIstiosClass(gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) bool {
	return waypoint.Controller(string(gw.Spec.GatewayClassName), class) == wellknown.MeshController
}

// madeByIstio says whether Istio's controller applied an object for a Gateway.
func madeByIstio(gw *gatewayv1.Gateway, u *unstructured.Unstructured) bool {
	return u.GetLabels()[wellknown.GatewayManaged] == waypoint.Managed && waypoint.Owns(gw, u.GetOwnerReferences()) && slices.ContainsFunc(u.GetManagedFields(), appliedByIstio)
}

func appliedByIstio(f metav1.ManagedFieldsEntry) bool {
	return f.Manager == istioManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
}

// otherSelector says whether the selector of a Deployment that is there differs from the one to be applied. No selector can be changed.
func otherSelector(there, wanted *unstructured.Unstructured) bool {
	labels := func(u *unstructured.Unstructured) map[string]string {
		m, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
		return m
	}
	return there.GetKind() == "Deployment" && !maps.Equal(labels(there), labels(wanted))
}

// adopt makes the deployer the manager of the fields that Istio's controller applied to an object. The next apply then removes those that a
// waypoint of this mesh does not have. Without it variables and volumes of Istio's proxy would stay in the pods.
func (d *Deployer) adopt(ctx context.Context, there *unstructured.Unstructured) error {
	fields, err := handedOver(there.GetManagedFields())
	if err != nil {
		return fmt.Errorf("adopt %s %s/%s: %w", there.GetKind(), there.GetNamespace(), there.GetName(), err)
	}
	if err := d.manage(ctx, there, fields); err != nil {
		return fmt.Errorf("adopt %s %s/%s: %w", there.GetKind(), there.GetNamespace(), there.GetName(), err)
	}
	d.Logger.Info("deployer: an object that Istio made is adopted", "kind", there.GetKind(), "object", there.GetNamespace()+"/"+there.GetName())
	return nil
}

// manage changes who manages the fields of an object, if nobody has changed the object since it was read.
func (d *Deployer) manage(ctx context.Context, there *unstructured.Unstructured, fields []metav1.ManagedFieldsEntry) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": string(there.GetUID()), "resourceVersion": there.GetResourceVersion(), "managedFields": fields,
	}})
	if err != nil {
		return err
	}
	_, err = d.Client.Resource(resources[there.GetKind()]).Namespace(there.GetNamespace()).Patch(ctx, there.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: FieldManager})
	return err
}

// handedOver are an object's managed fields with those of Istio's controller among the deployer's own.
func handedOver(all []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	var out []metav1.ManagedFieldsEntry
	var own *metav1.ManagedFieldsEntry
	fields := fieldpath.NewSet()
	for _, f := range all {
		if !appliedByIstio(f) && !appliedHere(f) {
			out = append(out, f)
			continue
		}
		if f.FieldsV1 != nil {
			set := &fieldpath.Set{}
			if err := set.FromJSON(bytes.NewReader(f.FieldsV1.Raw)); err != nil {
				return nil, fmt.Errorf("read the fields of manager %s: %w", f.Manager, err)
			}
			fields = fields.Union(set)
		}
		if own == nil || appliedHere(f) {
			own = &f
		}
	}
	if own == nil {
		return out, nil
	}
	raw, err := fields.ToJSON()
	if err != nil {
		return nil, err
	}
	own.Manager, own.FieldsV1 = FieldManager, &metav1.FieldsV1{Raw: raw}
	return append(out, *own), nil
}

// istioCure is what to do about a Gateway on which Istio's controller is at work.
func istioCure(gw *gatewayv1.Gateway) string {
	return fmt.Sprintf("end it by `lateen install --take-over=istio`, or move the Gateway to this mesh alone with kubectl patch -n %s gateway %s --type=merge -p '{\"spec\":{\"gatewayClassName\":%q}}'", gw.Namespace, gw.Name, waypoint.Class)
}
