package ca

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
)

// asks says whether node n1 gets a certificate for an account of a namespace, whether its use of one counts, and why not.
func (a *authority) asks(namespace, account string) (granted, used bool, why string) {
	a.t.Helper()
	id := "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
	_, err := a.ask(a.token(nil), id, csr(a.t, newKey(a.t), nil, id), 0)
	if err != nil && status.Code(err) != codes.PermissionDenied {
		a.t.Fatalf("%s: %v", id, err)
	}
	return err == nil, InUse(a.store, Holder{Node: "n1", Identity: id}, a.now), status.Convert(err).Message()
}

// With its kubelet's credential a node makes mirror pods in every namespace, and the API server wants their accounts empty.
func TestAPodWithoutAnIdentityGivesItsNodeNone(t *testing.T) {
	yes := true
	node := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", Controller: &yes}}
	mirror := map[string]string{"kubernetes.io/config.mirror": "x"}
	for name, edit := range map[string]func(*corev1.Pod){
		"no account":               func(p *corev1.Pod) { p.Spec.ServiceAccountName = "" },
		"a mirror":                 func(p *corev1.Pod) { p.Annotations = mirror },
		"its node's":               func(p *corev1.Pod) { p.OwnerReferences = node },
		"a mirror, as a node must": func(p *corev1.Pod) { p.Spec.ServiceAccountName, p.Annotations, p.OwnerReferences = "", mirror, node },
	} {
		a := newAuthority(t)
		p := pod("payments", "forged", "default", "n1", "f1")
		a.put(p)
		if granted, used, why := a.asks("payments", "default"); !granted || !used {
			t.Fatalf("a pod of the account is on the node: granted %v, used %v: %s", granted, used, why)
		}
		edit(p)
		a.put(p)
		if granted, used, why := a.asks("payments", "default"); granted || used || !strings.Contains(why, "no pod on node n1 runs as payments/default") {
			t.Errorf("%s: granted %v, used %v: %s", name, granted, used, why)
		}
	}
}

func TestAStaticPodIsNoCaller(t *testing.T) {
	a := newAuthority(t)
	proxy, _ := a.store.Pod(model.PodKey("istio-system", "ztunnel-n1"))
	static := proxy.DeepCopy()
	static.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
	a.put(static)
	if granted, _, why := a.asks("shop", "web"); granted || a.counted.refused["no_identity"] != 1 {
		t.Errorf("granted %v: %s; %v", granted, why, a.counted.refused)
	}
}

// A kubelet alone says that the containers of a deleted pod have ended.
func TestADeletedPodKeepsItsIdentityUntilItsDeadline(t *testing.T) {
	for _, c := range []struct {
		name       string
		given, own int64 // grace periods in seconds: of the deletion and of the pod; -1 is unknown
		keeps      time.Duration
	}{
		{"of a source that says no period", -1, 30, 0},
		{"its own period", 30, 30, 30 * time.Second},
		{"a shorter one", 5, 30, 5 * time.Second},
		{"at once", 0, 30, 0},
		{"a longer one, up to an hour", 1800, 30, 30 * time.Minute},
		{"years, which its kubelet asked for", 1e9, 30, time.Hour},
		{"years, of a pod that does not say its own", 1e9, -1, time.Hour},
		{"hours, which the pod asks for itself", 4 * 3600, 4 * 3600, 4 * time.Hour},
		{"more than the pod's hours", 1e9, 4 * 3600, 4 * time.Hour},
	} {
		a := newAuthority(t)
		deleted := a.now
		p := pod("payments", "going", "card", "n1", "g1")
		if c.own >= 0 {
			p.Spec.TerminationGracePeriodSeconds = &c.own
		}
		p.DeletionTimestamp = &metav1.Time{Time: deleted}
		if c.given >= 0 {
			p.DeletionGracePeriodSeconds = &c.given
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(deleted.Unix()+c.given, 0)}
		}
		a.put(p)
		for _, at := range []time.Duration{c.keeps, c.keeps + endLeeway, c.keeps + endLeeway + time.Second} {
			a.now = deleted.Add(at)
			want := at <= c.keeps+endLeeway
			_, err := a.service.Authorizer.Identity(Caller{Namespace: "istio-system", ServiceAccount: "ztunnel", PodName: "ztunnel-n1", PodUID: "z1"}, "spiffe://cluster.local/ns/payments/sa/card")
			used := InUse(a.store, Holder{Node: "n1", Identity: "spiffe://cluster.local/ns/payments/sa/card"}, a.now)
			if (err == nil) != want || used != want {
				t.Errorf("%s: %s after the deletion: %v, used %v, want %v", c.name, at, err, used, want)
			}
		}
	}
}
