package deployer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model/wellknown"
)

// maxMessage is what of a message is written, in bytes.
const maxMessage = 4 << 10

// tell writes the one condition that is the deployer's into a Gateway's status, if it does not stand there already. All others are the
// control plane's: server-side apply leaves them alone.
func (d *Deployer) tell(ctx context.Context, gw *gatewayv1.Gateway, v verdict) error {
	status := metav1.ConditionFalse
	if v.ok {
		status = metav1.ConditionTrue
	}
	message := v.message
	if len(message) > maxMessage {
		message = message[:maxMessage-3] + "..."
	}
	now := metav1.Condition{Type: wellknown.Deployed, Status: status, Reason: v.reason, Message: message, ObservedGeneration: gw.Generation, LastTransitionTime: metav1.NewTime(d.Now().UTC().Truncate(time.Second))}
	for _, c := range gw.Status.Conditions {
		if c.Type != wellknown.Deployed {
			continue
		}
		if c.Status == now.Status {
			now.LastTransitionTime = c.LastTransitionTime
		}
		if c == now {
			return nil
		}
	}
	if there, err := d.applyStatus(ctx, gw, map[string]any{"conditions": []metav1.Condition{now}}); err != nil || !there {
		return err
	}
	d.Logger.Info("deployer: "+message, "gateway", gw.Namespace+"/"+gw.Name, "reason", v.reason)
	return nil
}

// withdraw removes the deployer's condition from a Gateway that it does not deploy any more: nobody would renew it. What others wrote stays. A Gateway
// that is being deleted keeps it.
func (d *Deployer) withdraw(ctx context.Context, gw *gatewayv1.Gateway) error {
	said := slices.ContainsFunc(gw.Status.Conditions, func(c metav1.Condition) bool { return c.Type == wellknown.Deployed })
	own := slices.ContainsFunc(gw.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "status"
	})
	if !said || !own || gw.DeletionTimestamp != nil {
		return nil
	}
	if there, err := d.applyStatus(ctx, gw, map[string]any{}); err != nil || !there {
		return err
	}
	d.Logger.Info("deployer: the Gateway is not deployed here any more, and its condition is removed", "gateway", gw.Namespace+"/"+gw.Name)
	return nil
}

// applyStatus applies what of a Gateway's status is the deployer's. there is false if the Gateway is gone, or another one has its name by now.
func (d *Deployer) applyStatus(ctx context.Context, gw *gatewayv1.Gateway, said map[string]any) (there bool, _ error) {
	data, err := json.Marshal(map[string]any{
		"apiVersion": gatewayv1.GroupVersion.String(), "kind": "Gateway",
		"metadata": map[string]any{"namespace": gw.Namespace, "name": gw.Name, "uid": string(gw.UID)},
		"status":   said,
	})
	if err != nil {
		return false, err
	}
	force := true
	_, err = d.Client.Resource(gateways).Namespace(gw.Namespace).Patch(ctx, gw.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the condition %s of Gateway %s/%s: %w", wellknown.Deployed, gw.Namespace, gw.Name, err)
	}
	return true, nil
}
