package control

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/model"
)

// still are tokens that nothing has to be followed for.
type still struct{ tokens }

func (still) Run(context.Context, *slog.Logger) {}

// A replica is a pod that is there: a token of an earlier one, or one that somebody had made for the account alone, is none.
func TestAReplicaIsAPodOfTheControlPlane(t *testing.T) {
	caller := ca.Caller{Namespace: "lateen-system", ServiceAccount: ownAccount, PodName: "control-1", PodUID: "u1", NodeName: "n1"}
	unbound, earlier, elsewhere, other, namesake := caller, caller, caller, caller, caller
	unbound.PodName, unbound.PodUID = "", ""
	earlier.PodUID = "u0"
	elsewhere.NodeName = "n2"
	other.ServiceAccount = "lateen-node"
	namesake.Namespace = "shop"
	store := model.NewStore()
	c := &Control{opts: Options{Cluster: Cluster{Namespace: "lateen-system"}}, store: store}
	c.verifier = still{tokens{"good": caller, "unbound": unbound, "earlier": earlier, "elsewhere": elsewhere, "other": other, "namesake": namesake}}
	c.authorizer = &ca.NodeAuthorizer{TrustDomain: "cluster.local", Pods: store, Now: time.Now}
	answer := func(token string) codes.Code {
		return grpcstatus.Code(c.isReplica(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))))
	}
	if got := answer("good"); got != codes.Unavailable {
		t.Errorf("a pod that is not known yet: %s", got)
	}
	putPod(store, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "control-1", UID: "u1"}, Spec: corev1.PodSpec{ServiceAccountName: ownAccount, NodeName: "n1"}})
	for token, want := range map[string]codes.Code{"good": codes.OK, "unbound": codes.PermissionDenied, "earlier": codes.PermissionDenied, "elsewhere": codes.PermissionDenied,
		"other": codes.PermissionDenied, "namesake": codes.PermissionDenied, "invented": codes.Unauthenticated} {
		if got := answer(token); got != want {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
}
