package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// all is everything that proxies are told of addresses, in an order.
func (p *plane) all() string {
	p.t.Helper()
	var out []string
	for _, r := range p.log.Live(resourcekind.Address) {
		v, err := r.Decode()
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %v %v", r.Name, r.Aliases, v))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// somethingSliced is a pod, a Service or a slice of few names, so that they often bear on one another.
func somethingSliced(r *rand.Rand) *model.Object {
	ns, n := []string{"a", "b"}[r.IntN(2)], r.IntN(3)
	switch r.IntN(3) {
	case 0:
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", n), Namespace: ns, UID: "u", Labels: map[string]string{"app": fmt.Sprint(r.IntN(2))}}}
		pod.Status.PodIP = fmt.Sprintf("10.0.0.%d", 1+2*n+8*int(ns[0]-'a')+r.IntN(2))
		if r.IntN(6) == 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		return &model.Object{Key: model.PodKey(ns, pod.Name), Value: pod}
	case 1:
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", n%2), Namespace: ns},
			Spec: corev1.ServiceSpec{ClusterIP: "None", PublishNotReadyAddresses: r.IntN(2) == 0, Ports: []corev1.ServicePort{{Port: int32(80 + n)}}}} //nolint:gosec // a small number
		if r.IntN(2) == 0 {
			svc.Spec.Selector = map[string]string{"app": "0"}
		}
		if r.IntN(8) == 0 {
			svc.Spec.Type = corev1.ServiceTypeExternalName
		}
		return &model.Object{Key: model.ServiceKey(ns, svc.Name), Value: svc}
	}
	return sliceIn(ns, fmt.Sprint("e", n), fmt.Sprint("s", r.IntN(2)), fmt.Sprint("p", r.IntN(3)), fmt.Sprintf("10.0.0.%d", 1+r.IntN(16)), r.IntN(3) > 0)
}

// However pods, Services and slices came and went, proxies and authors are told what they would be told of what is there at once.
func TestSlicesComeToTheSameInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // a test
		p, there := newPlane(t), map[model.Key]*model.Object{}
		for range 60 {
			var changes []model.Change
			for range 1 + r.IntN(3) {
				o := somethingSliced(r)
				change := model.Change{Key: o.Key, Object: o}
				if there[o.Key] = o; r.IntN(4) == 0 {
					delete(there, o.Key)
					change.Object = nil
				}
				changes = append(changes, change)
			}
			p.Apply(changes)
		}
		q := newPlane(t)
		var changes []model.Change
		for key, o := range there {
			changes = append(changes, model.Change{Key: key, Object: o})
		}
		q.Apply(changes)
		if got, want := p.all(), q.all(); got != want {
			t.Fatalf("seed %d:\n%s\nat once:\n%s", seed, got, want)
		}
		for key := range there {
			got, want := p.condition(key), q.condition(key)
			if key.Kind == "EndpointSlice" && (got.Reason != want.Reason || got.Message != want.Message) {
				t.Errorf("seed %d: of %s it is said %q, at once %q", seed, key, got.Message, want.Message)
			}
		}
		if len(p.index.slicesOf) != len(q.index.slicesOf) || len(p.index.slices) != len(q.index.slices) {
			t.Errorf("seed %d: left: %v, %v", seed, p.index.slicesOf, p.index.slices)
		}
	}
}
