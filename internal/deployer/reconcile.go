package deployer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	reasonDeployed     = "Deployed"
	reasonTaken        = wellknown.ReasonTaken
	reasonLeftToIstio  = wellknown.ReasonLeftToIstio
	reasonIstioUnknown = wellknown.ReasonIstioUnknown
	reasonRefused      = "Refused"     // the API server does not take an object
	reasonPodsRefused  = "PodsRefused" // it does not take the pods
	reasonProgressing  = wellknown.ReasonProgressing
	reasonStuck        = "Stuck" // the pods do not become available
)

// unavailableFor is how long no pod of a Deployment that was rolled out may be available before it counts as stuck.
const unavailableFor = time.Minute

// verdict is what the condition says of a Gateway.
type verdict struct {
	ok              bool
	reason, message string
}

// reconcile brings the objects of a Gateway about and says in its status what came of it. It returns the reason of the condition, which is
// empty if nothing is known about the Gateway. Its error is one that time may mend. class is nil if there is none of the name.
func (d *Deployer) reconcile(ctx context.Context, gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) (reason string, _ error) {
	v, failed := d.deploy(ctx, gw, class)
	if failed != nil && v.reason == "" {
		return "", failed
	}
	return v.reason, errors.Join(failed, d.tell(ctx, gw, v))
}

func (d *Deployer) deploy(ctx context.Context, gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) (verdict, error) {
	if ofIstiosClass(gw, class) {
		switch why, err := d.istioAtWork(ctx); {
		case err != nil && why == "":
			return verdict{}, err // it passes, and the condition stays as it is
		case err != nil:
			return verdict{reason: reasonIstioUnknown, message: why + "; until it can, this mesh leaves its Gateways alone"}, err
		case why != "":
			return verdict{reason: reasonLeftToIstio, message: why + ", and this mesh leaves its Gateways alone; " + istioCure(gw)}, nil
		}
	}
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
	var adopted []*unstructured.Unstructured
	for _, m := range manifests {
		there, err := d.look(ctx, m)
		if err != nil {
			return verdict{}, err
		}
		if there == nil {
			continue
		}
		if why := taken(gw, m, there); why != "" {
			return verdict{reason: reasonTaken, message: why}, nil
		}
		if madeByIstio(gw, there) {
			adopted = append(adopted, there)
		}
	}
	for _, there := range adopted {
		if err := d.adopt(ctx, there); err != nil {
			return verdict{}, err
		}
	}
	var deployment *unstructured.Unstructured
	for _, m := range manifests {
		if m.GetKind() == "Deployment" && objects.Autoscaler != nil {
			if err := d.leaveReplicas(ctx, m); err != nil {
				return verdict{}, err
			}
		}
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
	return judge(deployment, d.Now())
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

// look reads the object of a manifest's name; nil if there is none.
func (d *Deployer) look(ctx context.Context, m *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there, err := d.Client.Resource(resources[m.GetKind()]).Namespace(m.GetNamespace()).Get(ctx, m.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("look for %s %s/%s: %w", m.GetKind(), m.GetNamespace(), m.GetName(), err)
	}
	return there, nil
}

// taken says why an object cannot be applied: one of its name is there that is neither the deployer's nor one that Istio's controller made for
// the same Gateway and gave up. It is never touched.
func taken(gw *gatewayv1.Gateway, m, there *unstructured.Unstructured) string {
	owned := waypoint.Owns(gw, there.GetOwnerReferences())
	made := madeHere(there)
	switch {
	case owned && made:
		return ""
	case madeByIstio(gw, there):
		if otherSelector(there, m) {
			return fmt.Sprintf("Deployment %s/%s is of an Istio before 1.24, and its selector cannot be changed; delete it with kubectl delete -n %[1]s deployment %[2]s, after which connections through the waypoint fail until its new pods are ready",
				m.GetNamespace(), m.GetName())
		}
		return ""
	case made && len(there.GetOwnerReferences()) > 0:
		return fmt.Sprintf("%s %s/%s belongs to an earlier Gateway of this name and is about to be removed", m.GetKind(), m.GetNamespace(), m.GetName())
	case m.GetKind() == "ServiceAccount":
		return fmt.Sprintf("ServiceAccount %s/%s exists and was not made for this Gateway; name it in the Gateway's annotation %s if the waypoint is to run as it, or give the Gateway another name",
			m.GetNamespace(), m.GetName(), wellknown.GatewayServiceAccount)
	}
	return fmt.Sprintf("%s %s/%s exists and was made by %s; delete it with kubectl delete -n %[2]s %[5]s %[3]s if the waypoint is to have its place, or give the Gateway another name",
		m.GetKind(), m.GetNamespace(), m.GetName(), makers(there), strings.ToLower(m.GetKind()))
}

// madeHere says whether the deployer has applied an object before.
func madeHere(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetManagedFields(), appliedHere)
}

func appliedHere(f metav1.ManagedFieldsEntry) bool {
	return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
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
func judge(u *unstructured.Unstructured, now time.Time) (verdict, error) {
	deployment := &appsv1.Deployment{}
	if err := convert(u, deployment); err != nil {
		return verdict{}, fmt.Errorf("read Deployment %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	status, wanted := deployment.Status, int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	name := "Deployment " + deployment.Namespace + "/" + deployment.Name
	if wanted == 0 {
		return verdict{reason: reasonStuck, message: fmt.Sprintf("%s: it is to have no pods; give it some with kubectl scale -n %s deployment %s --replicas=1", name, deployment.Namespace, deployment.Name)}, nil
	}
	if status.ObservedGeneration >= deployment.Generation {
		if v, is := failing(deployment, name, now); is {
			return v, nil
		}
	}
	if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas < wanted || status.AvailableReplicas < wanted {
		return verdict{reason: reasonProgressing, message: fmt.Sprintf("%s: %d of %d pods are of this version, and %d are available", name, status.UpdatedReplicas, wanted, status.AvailableReplicas)}, nil
	}
	return verdict{ok: true, reason: reasonDeployed, message: fmt.Sprintf("%s: %d of %d pods are available", name, status.AvailableReplicas, wanted)}, nil
}

// failing says what keeps the pods of a Deployment from becoming available, by the conditions of its present generation.
func failing(d *appsv1.Deployment, name string, now time.Time) (verdict, bool) {
	of := map[appsv1.DeploymentConditionType]appsv1.DeploymentCondition{}
	for _, c := range d.Status.Conditions {
		of[c.Type] = c
	}
	refused, rollout, available := of[appsv1.DeploymentReplicaFailure], of[appsv1.DeploymentProgressing], of[appsv1.DeploymentAvailable]
	pods := "-n " + d.Namespace + " pods -l " + wellknown.GatewayName + "=" + d.Name
	switch {
	case refused.Status == corev1.ConditionTrue:
		cure := "see kubectl describe -n " + d.Namespace + " replicaset -l " + wellknown.GatewayName + "=" + d.Name
		if strings.Contains(refused.Message, "violates PodSecurity") {
			cure = "take out of the parameters what the level of namespace " + d.Namespace + " does not admit, or change its label pod-security.kubernetes.io/enforce"
		}
		return verdict{reason: reasonPodsRefused, message: fmt.Sprintf("%s: its pods are refused: %s; %s", name, refused.Message, cure)}, true
	case rollout.Status == corev1.ConditionFalse:
		return verdict{reason: reasonStuck, message: fmt.Sprintf("%s: its rollout has not gone on in time, and %d pods are available; see kubectl describe %s", name, d.Status.AvailableReplicas, pods)}, true
	case rollout.Reason == rolledOut && available.Status == corev1.ConditionFalse && d.Status.AvailableReplicas == 0 && now.Sub(available.LastTransitionTime.Time) >= unavailableFor:
		return verdict{reason: reasonStuck, message: fmt.Sprintf("%s: none of its pods has been available since %s; see kubectl describe %s", name, available.LastTransitionTime.UTC().Format(time.RFC3339), pods)}, true
	}
	return verdict{}, false
}

// rolledOut is the reason of a Deployment's condition Progressing once all its pods were available.
const rolledOut = "NewReplicaSetAvailable"
