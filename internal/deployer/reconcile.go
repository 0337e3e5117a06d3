package deployer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// The reasons of the condition, beside those of waypoint.Refusal.
const (
	reasonDeployed    = "Deployed"
	reasonTaken       = "Taken"       // an object of the name is somebody else's
	reasonRefused     = "Refused"     // the API server does not take an object
	reasonPodsRefused = "PodsRefused" // it does not take the pods
	reasonProgressing = "Progressing"
)

// verdict is what the condition says of a Gateway.
type verdict struct {
	ok              bool
	reason, message string
}

// reconcile brings the objects of a Gateway about and says in its status what came of it. Its error is one that time may mend.
func (d *Deployer) reconcile(ctx context.Context, gw *gatewayv1.Gateway) error {
	v, failed := d.deploy(ctx, gw)
	if failed != nil && v.reason == "" {
		return failed // nothing is known about the Gateway
	}
	return errors.Join(failed, d.tell(ctx, gw, v))
}

func (d *Deployer) deploy(ctx context.Context, gw *gatewayv1.Gateway) (verdict, error) {
	in, err := d.input(ctx, gw)
	if err != nil {
		return verdict{}, err
	}
	objects, err := waypoint.Build(in)
	var refusal *waypoint.Refusal
	if errors.As(err, &refusal) {
		return verdict{reason: refusal.Reason, message: refusal.Message}, nil
	} else if err != nil {
		return verdict{}, err
	}
	manifests, err := objects.Manifests()
	if err != nil {
		return verdict{}, err
	}
	// All are looked at before the first is applied: half a waypoint is of no use.
	for _, m := range manifests {
		if why, err := d.taken(ctx, gw, m); why != "" || err != nil {
			return verdict{reason: reasonTakenIf(why), message: why}, err
		}
	}
	var deployment *unstructured.Unstructured
	for _, m := range manifests {
		applied, err := d.apply(ctx, m)
		if err != nil {
			return verdict{reason: reasonRefused, message: refused(m, err)}, err
		}
		if m.GetKind() == "Deployment" {
			deployment = applied
		}
	}
	if objects.Autoscaler == nil {
		err = d.remove(ctx, gw, "HorizontalPodAutoscaler")
	}
	if objects.Budget == nil {
		err = errors.Join(err, d.remove(ctx, gw, "PodDisruptionBudget"))
	}
	if err != nil {
		return verdict{}, err
	}
	return judge(deployment)
}

func reasonTakenIf(why string) string {
	if why == "" {
		return ""
	}
	return reasonTaken
}

// input reads what bears on a Gateway's objects.
func (d *Deployer) input(ctx context.Context, gw *gatewayv1.Gateway) (waypoint.Input, error) {
	in := waypoint.Input{Gateway: gw, Settings: d.Settings}
	if name, err := waypoint.ParametersOf(in); err == nil && name != "" {
		u, err := d.Client.Resource(configMaps).Namespace(gw.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return in, fmt.Errorf("read ConfigMap %s/%s: %w", gw.Namespace, name, err)
		default:
			in.Parameters = &corev1.ConfigMap{}
			if err := convert(u, in.Parameters); err != nil {
				return in, fmt.Errorf("read ConfigMap %s/%s: %w", gw.Namespace, name, err)
			}
		}
	}
	selector := wellknown.GatewayClassDefaults + "=" + string(gw.Spec.GatewayClassName)
	for _, namespace := range d.DefaultsFrom {
		list, err := d.Client.Resource(configMaps).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return in, fmt.Errorf("list ConfigMaps of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			var m corev1.ConfigMap
			if err := convert(&list.Items[i], &m); err != nil {
				return in, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, list.Items[i].GetName(), err)
			}
			in.Defaults = append(in.Defaults, m)
		}
	}
	return in, nil
}

// taken says why an object cannot be applied: one of its name is there, and somebody else made it. It is never touched.
func (d *Deployer) taken(ctx context.Context, gw *gatewayv1.Gateway, m *unstructured.Unstructured) (string, error) {
	there, err := d.Client.Resource(resources[m.GetKind()]).Namespace(m.GetNamespace()).Get(ctx, m.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("look for %s %s/%s: %w", m.GetKind(), m.GetNamespace(), m.GetName(), err)
	}
	owned := waypoint.Owns(gw, there.GetOwnerReferences())
	switch made := madeHere(there); {
	case owned && made:
		return "", nil
	case made && len(there.GetOwnerReferences()) > 0:
		return fmt.Sprintf("%s %s/%s belongs to an earlier Gateway of this name and is about to be removed", m.GetKind(), m.GetNamespace(), m.GetName()), nil
	case m.GetKind() == "ServiceAccount":
		return fmt.Sprintf("ServiceAccount %s/%s exists and was not made for this Gateway; name it in the Gateway's annotation %s if the waypoint is to run as it, or give the Gateway another name",
			m.GetNamespace(), m.GetName(), wellknown.GatewayServiceAccount), nil
	}
	return fmt.Sprintf("%s %s/%s exists and was made by %s; delete it with kubectl delete -n %[2]s %[5]s %[3]s if the waypoint is to have its place, or give the Gateway another name",
		m.GetKind(), m.GetNamespace(), m.GetName(), makers(there), strings.ToLower(m.GetKind())), nil
}

// madeHere says whether the deployer has applied an object before.
func madeHere(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
	})
}

// makers names who wrote an object, as the API server remembers it.
func makers(u *unstructured.Unstructured) string {
	var names []string
	for _, f := range u.GetManagedFields() {
		if f.Subresource == "" && !slices.Contains(names, f.Manager) {
			names = append(names, f.Manager)
		}
	}
	if len(names) == 0 {
		return "somebody else"
	}
	return strings.Join(names, " and ")
}

func (d *Deployer) apply(ctx context.Context, m *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	force := true
	return d.Client.Resource(resources[m.GetKind()]).Namespace(m.GetNamespace()).Patch(ctx, m.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force})
}

// refused says why the API server does not take an object.
func refused(m *unstructured.Unstructured, err error) string {
	gvr := resources[m.GetKind()]
	why := kube.Refusal(err, gvr.Group, gvr.Resource, "create", "patch")
	if why == "" {
		why = kube.Cause(err)
	}
	return fmt.Sprintf("%s %s/%s: %s", m.GetKind(), m.GetNamespace(), m.GetName(), why)
}

// remove deletes an object that the Gateway's parameters asked for earlier, and do not any more.
func (d *Deployer) remove(ctx context.Context, gw *gatewayv1.Gateway, kind string) error {
	client := d.Client.Resource(resources[kind]).Namespace(gw.Namespace)
	there, err := client.Get(ctx, gw.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look for %s %s/%s: %w", kind, gw.Namespace, gw.Name, err)
	}
	if !waypoint.Owns(gw, there.GetOwnerReferences()) || !madeHere(there) {
		return nil
	}
	uid := there.GetUID()
	err = client.Delete(ctx, gw.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove %s %s/%s: %w", kind, gw.Namespace, gw.Name, err)
	}
	return nil
}

// judge says what is to be said of a Deployment that was applied.
func judge(u *unstructured.Unstructured) (verdict, error) {
	deployment := &appsv1.Deployment{}
	if err := convert(u, deployment); err != nil {
		return verdict{}, fmt.Errorf("read Deployment %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	status, wanted := deployment.Status, int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	name := "Deployment " + deployment.Namespace + "/" + deployment.Name
	if status.ObservedGeneration >= deployment.Generation {
		for _, c := range status.Conditions {
			if c.Type != appsv1.DeploymentReplicaFailure || c.Status != corev1.ConditionTrue {
				continue
			}
			cure := "see kubectl describe -n " + deployment.Namespace + " replicaset -l " + wellknown.GatewayName + "=" + deployment.Name
			if strings.Contains(c.Message, "violates PodSecurity") {
				cure = "take out of the parameters what the level of namespace " + deployment.Namespace + " does not admit, or change its label pod-security.kubernetes.io/enforce"
			}
			return verdict{reason: reasonPodsRefused, message: fmt.Sprintf("%s: its pods are refused: %s; %s", name, c.Message, cure)}, nil
		}
	}
	if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas < wanted || status.AvailableReplicas < wanted {
		return verdict{reason: reasonProgressing, message: fmt.Sprintf("%s: %d of %d pods are of this version, and %d are available", name, status.UpdatedReplicas, wanted, status.AvailableReplicas)}, nil
	}
	return verdict{ok: true, reason: reasonDeployed, message: fmt.Sprintf("%s: %d of %d pods are available", name, status.AvailableReplicas, wanted)}, nil
}
