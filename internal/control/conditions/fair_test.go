package conditions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/model"
)

func TestNamespacesHaveTheirTurns(t *testing.T) {
	f := &fair{waiting: map[string][]model.Key{}}
	key := func(namespace string, i int) model.Key {
		return model.Key{Kind: "Service", Namespace: namespace, Name: fmt.Sprint(i)}
	}
	for i := range 1000 {
		f.Push(key("greedy", i))
	}
	f.Push(key("a", 0))
	f.Push(key("b", 0))
	f.Push(key("a", 1))
	var got []string
	for range 7 {
		k := f.Pop()
		got = append(got, k.Namespace+k.Name)
	}
	if want := []string{"greedy0", "a0", "b0", "greedy1", "a1", "greedy2", "greedy3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.Push(key("b", 1))
	if k := f.Pop(); k.Namespace == "greedy" {
		k = f.Pop()
		if k != key("b", 1) {
			t.Errorf("%v", k)
		}
	}
	for f.Len() > 0 {
		f.Pop()
	}
	if len(f.waiting) != 0 || len(f.turns) != 0 {
		t.Errorf("%d namespaces are remembered", len(f.waiting))
	}
}

// Somebody changes hundreds of his objects at once; what others change is written nearly at once all the same.
func TestOneTenantHoldsUpNobodyElsesConditions(t *testing.T) {
	r := newRig(t)
	r.writer.limiter = rate.NewLimiter(20, 1)
	key := func(namespace string, i int) model.Key {
		return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: fmt.Sprint("p", i)}
	}
	var written []string // the namespaces, in the order of the writes; only the rig's lock guards it
	r.fails(func(a kubetesting.Action) error {
		if a.GetVerb() == "patch" {
			written = append(written, a.GetNamespace())
		}
		return nil
	})
	r.lead()
	r.idle()
	const many = 300
	for i := range many {
		r.put(key("greedy", i), fmt.Sprint("g", i), 1, &securityv1.AuthorizationPolicy{}, nil, inForce)
	}
	order := func() []string { r.mu.Lock(); defer r.mu.Unlock(); return slices.Clone(written) }
	r.eventually("the tenant's are being written", func() bool { return len(order()) > 2 })
	before := len(order())
	r.put(key("shop", 0), "s", 1, &securityv1.AuthorizationPolicy{}, nil, inForce)
	r.eventually("another's is written", func() bool { return slices.Contains(order(), "shop") })
	if n := slices.Index(order(), "shop") - before; n > many/2 {
		t.Errorf("%d others were written first", n)
	}
}

// A tenant's objects take no status, say because they are too large for it. What others change is written all the same, and soon.
func TestObjectsThatTakeNoStatusHoldUpNobodyElses(t *testing.T) {
	for name, namespaces := range map[string]int{"of one namespace": 1, "of several namespaces": 10} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			key := func(namespace string, i int) model.Key {
				return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: fmt.Sprint("p", i)}
			}
			vain, written := 0, 0 // the rig's lock guards them
			r.fails(func(a kubetesting.Action) error {
				switch {
				case a.GetVerb() != "patch":
				case strings.HasPrefix(a.GetNamespace(), "large"):
					vain++
					return apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
				default:
					written++
				}
				return nil
			})
			count := func(of *int) int { r.mu.Lock(); defer r.mu.Unlock(); return *of }
			r.lead()
			r.idle()
			const large = 20
			for i := range large {
				r.put(key(fmt.Sprint("large", i%namespaces), i), fmt.Sprint("l", i), 1, &securityv1.AuthorizationPolicy{}, nil, inForce)
			}
			// The clock stands still from here: nothing is written that has to wait for others.
			r.eventually("they have failed", func() bool { return count(&vain) >= max(6, namespaces) })
			r.mu.Lock()
			r.now = time.Now()
			r.mu.Unlock()
			for i := range 5 {
				r.put(key(fmt.Sprint("shop", i), i), fmt.Sprint("s", i), 1, &securityv1.AuthorizationPolicy{}, nil, inForce)
			}
			r.eventually("the others are written", func() bool { return count(&written) == 5 })
			if n := strings.Count(r.log.String(), "cannot be written"); n > 4 {
				t.Errorf("the log tells of it %d times:\n%s", n, r.log.String())
			}
		})
	}
}

// If the kind is at fault, the more objects fail the fewer tries there are of each.
func TestAKindThatTakesNoStatusIsLeftAlone(t *testing.T) {
	r := newRig(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "authorizationpolicies"}, "a", errors.New("no"))
	of := schema.GroupResource{Group: model.SecurityGroup, Resource: "authorizationpolicies"}
	key := func(namespace string) model.Key {
		return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: "p"}
	}
	r.lead()
	r.idle()
	heard := func(namespace, result string, err error) time.Duration {
		return r.writer.heard(of, key(namespace), result, err)
	}
	r.mu.Lock()
	r.now = time.Now()
	r.mu.Unlock()
	for range 5 {
		if heard("a", resultRefused, forbidden) != 0 || heard("b", resultRefused, forbidden) != 0 {
			t.Fatal("two namespaces hold up their kind")
		}
	}
	if heard("c", resultRefused, forbidden) == 0 {
		t.Fatal("three do not")
	}
	pause := func(namespace string) time.Duration {
		r.writer.mu.Lock()
		defer r.writer.mu.Unlock()
		return r.writer.pause(of, key(namespace))
	}
	if pause("a") == 0 || pause("d") != 0 {
		t.Errorf("left alone for %v, and one that has not failed for %v", pause("a"), pause("d"))
	}
	if heard("d", resultWritten, nil); pause("a") != 0 || !strings.Contains(r.log.String(), "can be written again") {
		t.Error("one is written, and the others wait")
	}
	// No object can be the cause of this.
	if heard("a", resultAway, errors.New("dial tcp: connection refused")); pause("e") == 0 {
		t.Error("a server that is away is asked of every object")
	}
	if heard("e", resultWritten, nil); heard("a", resultAway, context.DeadlineExceeded) != 0 {
		t.Error("an object that takes long holds up the others")
	}
}

// One object whose status is not admitted says nothing of its kind, which goes on being left alone; and however the reasons alternate, each is
// told once.
func TestAnObjectThatIsInvalidSpeaksForItself(t *testing.T) {
	r := newRig(t)
	of := schema.GroupResource{Group: model.SecurityGroup, Resource: "authorizationpolicies"}
	key := func(namespace string) model.Key {
		return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: namespace, Name: "p"}
	}
	r.lead()
	r.idle()
	r.mu.Lock()
	r.now = time.Now()
	r.mu.Unlock()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "authorizationpolicies"}, "a", errors.New("no"))
	invalid := apierrors.NewBadRequest("bad")
	told := func() int { return strings.Count(r.log.String(), "cannot be written") }
	for range 50 {
		for _, n := range []string{"a", "b", "c"} {
			r.writer.heard(of, key(n), resultRefused, forbidden)
		}
		if r.writer.heard(of, key("x"), resultRefused, invalid) != 0 {
			t.Fatal("the object waits for its kind")
		}
	}
	r.writer.mu.Lock()
	pause := r.writer.pause(of, key("a"))
	r.writer.mu.Unlock()
	if pause == 0 {
		t.Error("the kind is not left alone any more")
	}
	// The rights of one object, those of all, and the one that is not admitted.
	if n := told(); n != 3 {
		t.Errorf("it is told %d times:\n%s", n, r.log.String())
	}
	r.writer.heard(of, key("d"), resultWritten, nil)
	r.writer.heard(of, key("x"), resultRefused, invalid)
	if n := told(); n != 3 {
		t.Errorf("it is told %d times, the last because another one was written:\n%s", n, r.log.String())
	}
	// Once the object is gone, the next for the same reason is another one's.
	r.writer.forget(key("x"))
	r.writer.heard(of, key("y"), resultRefused, invalid)
	if n := told(); n != 4 {
		t.Errorf("of another object it is told %d times", n-3)
	}
}
