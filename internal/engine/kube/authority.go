package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// authority is how it stands with the CA: as the replica says that leads, which alone knows what a rotation waits for, else any that answers.
func (e *Engine) authority(ctx context.Context) (*api.CAStatus, error) {
	pods, err := e.pods(ctx, "control")
	if err != nil {
		return nil, err
	}
	var any *api.CAStatus
	for i := range pods {
		if !ready(&pods[i]) {
			continue
		}
		b, _, asked := e.read(ctx, &pods[i], controlPages, "/debug/ca")
		if asked != nil {
			err = asked
			continue
		}
		s := &api.CAStatus{}
		if err = json.Unmarshal(b, s); err != nil {
			err = fmt.Errorf("what pod %s says of the CA: %w", pods[i].Name, err)
			continue
		}
		if any = s; s.Leads {
			return s, nil
		}
	}
	switch {
	case any != nil:
		return any, nil
	case err != nil:
		return nil, err
	}
	_, err = e.replica(ctx)
	return nil, err
}

// rotate asks for another root: an annotation on the CA's Secret, which the replica that leads follows.
func (e *Engine) rotate(ctx context.Context) error {
	s, err := e.authority(ctx)
	if err != nil {
		return err
	}
	switch s.Stage {
	case api.CASteady:
	case "":
		return &api.Error{Code: http.StatusConflict, Message: "the mesh's CA is plugged in, or signs by a Kubernetes signer: its root is not the mesh's to replace", Fix: "replace the CA where it comes from; `lateen ca status` names it"}
	default:
		return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("the root is being rotated already, since %s, stage %s", s.Since.UTC().Format(time.RFC3339), s.Stage), Fix: "wait for its end: `lateen ca status`"}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{wellknown.RotateRoot: time.Now().UTC().Format(time.RFC3339)}}})
	if err != nil {
		return err
	}
	_, err = e.Client.CoreV1().Secrets(e.Namespace).Patch(ctx, "lateen-ca", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "lateen"})
	if apierrors.IsNotFound(err) {
		return &api.Error{Code: http.StatusConflict, Message: "there is no Secret " + e.Namespace + "/lateen-ca, which holds the mesh's CA", Fix: "the control planes put it back within a minute; see `lateen ca status`"}
	}
	return e.refused(err)
}
