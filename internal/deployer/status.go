package deployer

import (
	"context"
	"encoding/json"
	"fmt"
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
	data, err := json.Marshal(map[string]any{
		"apiVersion": gatewayv1.GroupVersion.String(), "kind": "Gateway",
		"metadata": map[string]any{"namespace": gw.Namespace, "name": gw.Name, "uid": string(gw.UID)},
		"status":   map[string]any{"conditions": []metav1.Condition{now}},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = d.Client.Resource(gateways).Namespace(gw.Namespace).Patch(ctx, gw.Name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone, or another one has its name by now
	case err != nil:
		return fmt.Errorf("write the condition %s of Gateway %s/%s: %w", wellknown.Deployed, gw.Namespace, gw.Name, err)
	}
	d.Logger.Info("deployer: "+message, "gateway", gw.Namespace+"/"+gw.Name, "reason", v.reason)
	return nil
}
