package control

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
)

func proxyPod(uid, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lateen-system", Name: "node-1", UID: types.UID(uid)},
		Spec: corev1.PodSpec{ServiceAccountName: "lateen-node", NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func putPod(store *model.Store, pod *corev1.Pod) {
	key := model.PodKey(pod.Namespace, pod.Name)
	store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, Value: pod}}})
}

func TestAStreamIsForANodeProxysPod(t *testing.T) {
	caller := ca.Caller{Namespace: "lateen-system", ServiceAccount: "lateen-node", PodName: "node-1", PodUID: "u1", NodeName: "n1"}
	unbound, elsewhere, other := caller, caller, caller
	unbound.PodName, unbound.PodUID = "", ""
	elsewhere.NodeName = "n2"
	other.ServiceAccount = "web"
	good := tokens{"good": caller, "unbound": unbound, "elsewhere": elsewhere, "other": other}
	store, now, refused := model.NewStore(), time.Now(), 0
	s := streams{verifier: good, bound: true, refused: func() { refused++ },
		authorizer: &ca.NodeAuthorizer{TrustDomain: "cluster.local", Pods: store, Accounts: map[string]bool{"lateen-system/lateen-node": true}, Now: func() time.Time { return now }}}
	with := func(token string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
	}
	// The pod has just started, and is not known here yet.
	if _, _, err := s.Authenticate(with("good")); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("an unknown pod: %v", err)
	}
	putPod(store, proxyPod("u1", "n1"))
	for token, want := range map[string]codes.Code{"unbound": codes.PermissionDenied, "elsewhere": codes.PermissionDenied, "other": codes.PermissionDenied, "invented": codes.Unauthenticated} {
		if _, _, err := s.Authenticate(with(token)); grpcstatus.Code(err) != want {
			t.Errorf("%s: %v", token, err)
		}
	}
	client, still, err := s.Authenticate(with("good"))
	if err != nil || client.Role != resourcelog.RoleNode || client.Node != "n1" || client.Workload != "lateen-system/node-1" || still(with("good")) != nil {
		t.Fatalf("%+v %v", client, err)
	}
	if refused != 4 {
		t.Errorf("%d refusals were counted", refused)
	}
	for name, change := range map[string]func() func(){
		"its pod is another now": func() func() {
			putPod(store, proxyPod("u2", "n1"))
			return func() { putPod(store, proxyPod("u1", "n1")) }
		},
		"its pod is on another node": func() func() {
			putPod(store, proxyPod("u1", "n2"))
			return func() { putPod(store, proxyPod("u1", "n1")) }
		},
		"its pod is gone": func() func() {
			store.Apply([]model.Change{{Key: model.PodKey("lateen-system", "node-1")}})
			return func() { putPod(store, proxyPod("u1", "n1")) }
		},
		"its pod has ended": func() func() {
			p := proxyPod("u1", "n1")
			p.Status.Phase = corev1.PodFailed
			putPod(store, p)
			return func() { putPod(store, proxyPod("u1", "n1")) }
		},
		"its token is no longer good": func() func() { delete(good, "good"); return func() { good["good"] = caller } },
	} {
		undo := change()
		if still(with("good")) == nil {
			t.Errorf("%s, and its stream goes on", name)
		}
		undo()
	}
	// One that is told to go serves on until its time is over.
	going := proxyPod("u1", "n1")
	going.DeletionTimestamp = &metav1.Time{Time: now.Add(30 * time.Second)}
	putPod(store, going)
	if err := still(with("good")); err != nil {
		t.Errorf("its pod is to go: %v", err)
	}
	now = now.Add(5 * time.Minute)
	if still(with("good")) == nil {
		t.Error("its pod should have gone long ago, and its stream goes on")
	}
}

// What the Gateway says decides, and no label of the pod.
func TestAStreamIsForTheProxiesOfAGateway(t *testing.T) {
	caller := ca.Caller{Namespace: "shop", ServiceAccount: "wp", PodName: "wp-1", PodUID: "u1", NodeName: "n1"}
	good := tokens{"good": caller}
	store, accounts, nodes := model.NewStore(), map[string]bool{}, map[string]bool{}
	s := streams{verifier: good, bound: true, refused: func() {}, gateways: func(account string) bool { return accounts[account] },
		authorizer: &ca.NodeAuthorizer{TrustDomain: "cluster.local", Pods: store, Accounts: nodes, Now: time.Now}}
	with := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer good"))
	putPod(store, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "wp-1", UID: "u1", Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": "wp"}},
		Spec: corev1.PodSpec{ServiceAccountName: "wp", NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	if _, _, err := s.Authenticate(with); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Fatalf("no Gateway names its account: %v", err)
	}
	accounts["shop/wp"] = true
	client, still, err := s.Authenticate(with)
	if err != nil || client.Role != resourcelog.RoleWaypoint || client.Identity != "shop/wp" || still(with) != nil {
		t.Fatalf("%+v %v", client, err)
	}
	// A node proxy that a Gateway names as well is a node proxy, and who becomes one asks again.
	nodes["shop/wp"] = true
	if err := still(with); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("its role is another: %v", err)
	}
	if client, _, err = s.Authenticate(with); err != nil || client.Role != resourcelog.RoleNode {
		t.Errorf("%+v %v", client, err)
	}
	delete(nodes, "shop/wp")
	delete(accounts, "shop/wp")
	if err := still(with); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("its Gateway is gone: %v", err)
	}
}
