package kube

import (
	"errors"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
)

func TestAPatchIsBoundToTheVersionThatItNames(t *testing.T) {
	object := &metav1.ObjectMeta{UID: "7", Generation: 3, ResourceVersion: "99"}
	const labels = `{"metadata":{"labels":{"a":"b"}}}`
	for want, request := range map[string]api.PatchRequest{
		labels: {},
		`{"metadata":{"labels":{"a":"b"},"resourceVersion":"99"}}`: {UID: "7", Generation: 3},
	} {
		request.Patch = []byte(labels)
		if got, err := onVersion(request, object); err != nil || string(got) != want {
			t.Errorf("%+v: %s, %v", request, got, err)
		}
	}
	for _, request := range []api.PatchRequest{{UID: "8"}, {UID: "7", Generation: 2}} {
		var refusal *api.Error
		if _, err := onVersion(request, object); !errors.As(err, &refusal) || refusal.Code != http.StatusConflict {
			t.Errorf("%+v: %v", request, err)
		}
	}
}
