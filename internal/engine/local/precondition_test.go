package local

import (
	"errors"
	"net/http"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestAPatchForAnotherVersionIsRefused(t *testing.T) {
	o := &stored{uid: "7", version: 3}
	for _, tc := range []struct {
		request api.PatchRequest
		refused bool
	}{
		{api.PatchRequest{}, false}, {api.PatchRequest{UID: "7", Generation: 3}, false},
		{api.PatchRequest{UID: "7", Generation: 2}, true}, {api.PatchRequest{UID: "8", Generation: 3}, true},
	} {
		err := precondition(tc.request, o)
		var refusal *api.Error
		if (err != nil) != tc.refused || tc.refused && (!errors.As(err, &refusal) || refusal.Code != http.StatusConflict || refusal.Fix == "") {
			t.Errorf("%+v: %v", tc.request, err)
		}
	}
}
