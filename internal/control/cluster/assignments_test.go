package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/compile"
)

// heard is a compiler that only listens.
type heard struct {
	mu       sync.Mutex
	kept     map[string][]netip.Addr
	waiting  map[string]string
	lost     int
	tried    int
	unneeded []string
	arrived  []string
	wants    chan struct{}
	keep     func(context.Context) error
}

func (h *heard) Adopt(kept map[string][]netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = kept
}

func (h *heard) AdoptWaiting(waiting map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = waiting
}

func (h *heard) Lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost++
}

func (h *heard) Wants() <-chan struct{} { return h.wants }

func (h *heard) Keep(ctx context.Context) error {
	h.mu.Lock()
	h.tried++
	h.mu.Unlock()
	return h.keep(ctx)
}

func (h *heard) Unneeded() []string { return h.unneeded }

func (h *heard) Arrived() []string { return h.arrived }

func (h *heard) is(f func(*heard) bool) func() bool {
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return f(h)
	}
}

func at(i int) []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{240, 240, 1, byte(i)})} }

func TestReplicasThatWriteAtOnceLoseNothing(t *testing.T) {
	api := newAPI()
	var done sync.WaitGroup
	for i := range 8 {
		a := NewAssignments(api, home, time.Now, (&said{}).logger())
		done.Go(func() {
			if err := a.Update(t.Context(), func(kept map[string][]netip.Addr) bool {
				kept[fmt.Sprint(i)] = at(i)
				return true
			}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	h := &heard{}
	a := NewAssignments(api, home, time.Now, (&said{}).logger())
	a.For(h)
	go a.Run(t.Context())
	eventually(t, "all are heard of", h.is(func(h *heard) bool { return len(h.kept) == 8 }))
	writes := api.writes.Load()
	if err := a.Update(t.Context(), func(map[string][]netip.Addr) bool { return false }); err != nil || api.writes.Load() != writes {
		t.Errorf("it writes what did not change: %v", err)
	}
	eventually(t, "they are watched", api.watches.Began("configmaps"))
	if err := api.CoreV1().ConfigMaps(home).Delete(t.Context(), AssignmentsConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is heard of", h.is(func(h *heard) bool { return h.lost == 1 && len(h.kept) == 8 }))
}

func TestAssignmentsThatCannotBeKeptAreTriedAgain(t *testing.T) {
	api := newAPI()
	api.away.Store(true)
	said := &said{}
	a := NewAssignments(api, home, time.Now, said.logger())
	h := &heard{wants: make(chan struct{}, 1)}
	h.keep = func(ctx context.Context) error {
		return a.Update(ctx, func(kept map[string][]netip.Addr) bool { kept["a"] = at(1); return true })
	}
	a.For(h)
	go a.Run(t.Context())
	h.wants <- struct{}{}
	eventually(t, "it is tried again", h.is(func(h *heard) bool { return h.tried > 2 }))
	if api.writes.Load() != 0 {
		t.Error("it is written while the API server is away")
	}
	api.away.Store(false)
	eventually(t, "it is kept", h.is(func(h *heard) bool { return len(h.kept) == 1 }))
	if n := strings.Count(said.String(), errAway.Error()); n == 0 || n > 2 { // of writing, and of following
		t.Errorf("the log says %d times that the API server is away", n)
	}
}

func TestWhatIsKeptIsReadBeforeAnythingIsCompiled(t *testing.T) {
	api := newAPI(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: AssignmentsConfigMap}, Data: map[string]string{addressesKey: `{"a":["240.240.1.1"]}`}})
	api.away.Store(true)
	a := NewAssignments(api, home, time.Now, (&said{}).logger())
	h := &heard{}
	a.For(h)
	if err := a.Ready(); err == nil {
		t.Error("ready before it was read")
	}
	done := make(chan error, 1)
	go func() { done <- a.Load(t.Context()) }()
	eventually(t, "it says why it waits", func() bool { err := a.Ready(); return err != nil && strings.Contains(err.Error(), errAway.Error()) })
	select {
	case err := <-done:
		t.Fatalf("it went on without what is kept: %v", err)
	default:
	}
	api.away.Store(false)
	if err := <-done; err != nil || a.Ready() != nil {
		t.Fatal(err, a.Ready())
	}
	if len(h.kept) != 1 {
		t.Errorf("the compiler has %v", h.kept)
	}
}

// What a watch tells late must not undo what was written meanwhile.
func TestWhatIsHeardLateIsNotTakenOver(t *testing.T) {
	api := newAPI()
	a := NewAssignments(api, home, time.Now, (&said{}).logger())
	h := &heard{wants: make(chan struct{}, 1)}
	in, out := make(chan struct{}), make(chan struct{})
	h.keep = func(ctx context.Context) error {
		close(in)
		<-out
		return nil
	}
	a.For(h)
	go a.Run(t.Context())
	h.wants <- struct{}{}
	<-in
	if err := a.Update(t.Context(), func(kept map[string][]netip.Addr) bool { kept["a"] = at(1); return true }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // the watch has told by now, most often
	if !h.is(func(h *heard) bool { return h.kept == nil })() {
		t.Error("it is taken over while the compiler is writing")
	}
	close(out)
	eventually(t, "it is taken over", h.is(func(h *heard) bool { return len(h.kept) == 1 }))
}

// A store that is restored has its versions begin anew at an older one. What is kept then is taken over all the same, now and later.
func TestARestoredStoreIsHeard(t *testing.T) {
	api := newAPI()
	api.version.Store(1000)
	said := &said{}
	a := NewAssignments(api, home, time.Now, said.logger())
	h := &heard{}
	a.For(h)
	put := func(name string, i int) func(map[string][]netip.Addr) bool {
		return func(kept map[string][]netip.Addr) bool { clear(kept); kept[name] = at(i); return true }
	}
	has := func(name string) func() bool {
		return h.is(func(h *heard) bool { return len(h.kept) == 1 && h.kept[name] != nil })
	}
	if err := a.Update(t.Context(), put("new", 1)); err != nil {
		t.Fatal(err)
	}
	go a.Run(t.Context())
	eventually(t, "what there is is heard", has("new"))
	api.version.Store(10)
	other := NewAssignments(api, home, time.Now, said.logger())
	for i, name := range []string{"restored", "later"} {
		if err := other.Update(t.Context(), put(name, i+2)); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is heard", has(name))
	}
	if n := strings.Count(said.String(), "as after a restore"); n != 1 {
		t.Errorf("it is told %d times: %s", n, said)
	}
}

func TestDamagedOrFullAssignmentsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                  "restore it",
		`{"a":["10.0.0.1"]}`: "in neither",
		`{"a":["240.240.1.1"],"b":["240.240.1.1"]}`: "belongs to both",
	} {
		api := newAPI(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: AssignmentsConfigMap}, Data: map[string]string{addressesKey: text}})
		err := NewAssignments(api, home, time.Now, (&said{}).logger()).Update(t.Context(), func(map[string][]netip.Addr) bool { t.Error("asked"); return true })
		if err == nil || !strings.Contains(err.Error(), want) || api.writes.Load() != 0 {
			t.Errorf("%s: %v", text, err)
		}
	}
	api := newAPI()
	err := NewAssignments(api, home, time.Now, (&said{}).logger()).Update(t.Context(), func(kept map[string][]netip.Addr) bool {
		kept[strings.Repeat("x", MaxAddresses)] = at(1)
		return true
	})
	if err == nil || !strings.Contains(err.Error(), "is full") || api.writes.Load() != 0 {
		t.Errorf("got %v", err)
	}
}

func TestAddressesThatNothingNeedsAreFreedInTheEnd(t *testing.T) {
	now := start
	a := NewAssignments(newAPI(), home, func() time.Time { return now }, (&said{}).logger())
	a.For(&heard{unneeded: []string{"gone"}})
	if err := a.Update(t.Context(), func(kept map[string][]netip.Addr) bool { kept["gone"], kept["there"] = at(1), at(2); return true }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 2, 1} {
		if err := a.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.Update(t.Context(), func(kept map[string][]netip.Addr) bool {
			if len(kept) != want {
				t.Errorf("after %s %d are kept, want %d", now.Sub(start), len(kept), want)
			}
			return false
		}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(unneededFor / 2)
	}
}

func TestNotesOfObjectsThatArrivedAreFreedInTheEnd(t *testing.T) {
	now := start
	a := NewAssignments(newAPI(), home, func() time.Time { return now }, (&said{}).logger())
	a.For(&heard{arrived: []string{"gone"}})
	if err := a.UpdateWaiting(t.Context(), func(kept map[string]string) bool { kept["gone"], kept["there"] = "a/b a/b", " a/b"; return true }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{2, 2, 1} {
		if err := a.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.UpdateWaiting(t.Context(), func(kept map[string]string) bool {
			if len(kept) != want {
				t.Errorf("after %s %d are kept, want %d", now.Sub(start), len(kept), want)
			}
			return false
		}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(unneededFor / 2)
	}
}

// A request that hangs does so with the turn of all who write: it ends by itself.
func TestARemovalThatHangsGivesUpItsTurn(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // before the server waits for what is asked of it
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	now := start
	a := NewAssignments(client, home, func() time.Time { return now }, (&said{}).logger())
	a.timeout = 100 * time.Millisecond
	a.For(&heard{unneeded: []string{"gone"}})
	if err := a.prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(unneededFor)
	ended := make(chan error, 1)
	go func() { ended <- a.prune(ctx) }()
	<-asked
	select {
	case err := <-ended:
		if err == nil || !a.turn.TryLock() {
			t.Errorf("it ended with %v, and holds the turn of others", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it holds the turn of all who write")
	}
}

// versions is a ConfigMap that control planes of several versions write. Earlier versions know the key "waiting" alone. The first one has lines of another form
// there, and takes a line that is gone for the word that the object may go.
type versions struct {
	*testing.T
	api *api
	a   *Assignments
}

func newVersions(t *testing.T) *versions {
	api := newAPI()
	v := &versions{t, api, NewAssignments(api, home, time.Now, (&said{}).logger())}
	if err := v.a.Update(t.Context(), func(kept map[string][]netip.Addr) bool { kept["svc"] = at(1); return true }); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *versions) now() *corev1.ConfigMap {
	v.Helper()
	c, err := v.api.CoreV1().ConfigMaps(home).Get(v.Context(), AssignmentsConfigMap, metav1.GetOptions{})
	if err != nil {
		v.Fatal(err)
	}
	return c
}

// write has another version write a key.
func (v *versions) write(key, text string) {
	v.Helper()
	c := v.now()
	c.Data[key] = text
	if _, err := v.api.CoreV1().ConfigMaps(home).Update(v.Context(), c, metav1.UpdateOptions{}); err != nil {
		v.Fatal(err)
	}
}

// change has this version change what it reads, which is to be want.
func (v *versions) change(want map[string]string, change func(kept map[string]string)) {
	v.Helper()
	if err := v.a.UpdateWaiting(v.Context(), func(kept map[string]string) bool {
		if !reflect.DeepEqual(kept, want) {
			v.Errorf("it reads %q, want %q", kept, want)
		}
		change(kept)
		return true
	}); err != nil {
		v.Fatal(err)
	}
}

func (v *versions) is(key, want string) {
	v.Helper()
	if got := v.now().Data[key]; got != want {
		v.Errorf("%s is %s, want %s", key, got, want)
	}
}

// Replicas of several versions run during an upgrade.
func TestReplicasOfSeveralVersionsDoNotMisreadEachOthersMemory(t *testing.T) {
	v := newVersions(t)
	// The first version writes, and this one reads it. What waits is told to the first version as well.
	v.write("waiting", `{"Service shop/a":"","Service shop/b":"shop/wp","Service shop/c":"shop/wp"}`)
	v.change(map[string]string{"Service shop/a": "", "Service shop/b": "shop/wp", "Service shop/c": "shop/wp"}, func(kept map[string]string) {
		kept["Service shop/a"] = " shop/wp"
		kept["Service shop/new"] = "shop/wp shop/next"
	})
	v.is("waiting", `{"Service shop/a":"","Service shop/b":"shop/wp","Service shop/c":"shop/wp","Service shop/new":"shop/wp"}`)
	v.is("waiting.v2", `{"Service shop/a":" shop/wp","Service shop/new":"shop/wp shop/next"}`)
	// The first version hears that an object may go, and that another one waits.
	v.write("waiting", `{"Service shop/b":"shop/wp","Service shop/c":"shop/wp","Service shop/d":"","Service shop/new":"shop/wp"}`)
	v.change(map[string]string{"Service shop/a": "shop/wp shop/wp bound", "Service shop/new": "shop/wp shop/next", "Service shop/b": "shop/wp", "Service shop/c": "shop/wp", "Service shop/d": ""}, func(kept map[string]string) {
		kept["Service shop/b"] = "shop/next shop/next bound"
		delete(kept, "Service shop/c")
	})
	// The first version is told so in its own way, and keeps what it has of others.
	v.is("waiting", `{"Service shop/d":"","Service shop/new":"shop/wp"}`)
	v.is("waiting.v2", `{"Service shop/a":"shop/wp shop/wp bound","Service shop/b":"shop/next shop/next bound","Service shop/new":"shop/wp shop/next"}`)
	// Nothing is left for the first version when the last of the objects may go.
	v.change(map[string]string{"Service shop/a": "shop/wp shop/wp bound", "Service shop/b": "shop/next shop/next bound", "Service shop/d": "", "Service shop/new": "shop/wp shop/next"}, func(kept map[string]string) {
		kept["Service shop/d"] = "shop/wp shop/wp bound"
		delete(kept, "Service shop/new")
	})
	if _, there := v.now().Data["waiting"]; there {
		t.Errorf("it is still there: %v", v.now().Data)
	}
	// Lines that a later version keeps beside stay.
	v.write("waiting.v3", `{"Service shop/a":{"way":"shop/wp"}}`)
	v.change(map[string]string{"Service shop/a": "shop/wp shop/wp bound", "Service shop/b": "shop/next shop/next bound", "Service shop/d": "shop/wp shop/wp bound"}, func(kept map[string]string) {
		delete(kept, "Service shop/d")
	})
	v.is("waiting.v3", `{"Service shop/a":{"way":"shop/wp"}}`)
	v.is("addresses", `{"svc":["240.240.1.1"]}`)
}

// A mesh may go back to an earlier version and forward again. The lines of this version outlive that, since the earlier one does not know their key.
func TestWhatAnEarlierVersionDidCountsBeforeTheLinesThatStayed(t *testing.T) {
	const object = "Service shop/web"
	for name, c := range map[string]struct {
		own, earlier, want string
		gone               bool
	}{
		"nothing":                                        {own: " shop/wp late=1", earlier: "", want: " shop/wp late=1"},
		"nothing of another label":                       {own: "shop/wp shop/next", earlier: "shop/wp", want: "shop/wp shop/next"},
		"it bound the object":                            {own: " shop/wp late=1", gone: true, want: "shop/wp shop/wp bound late=1"},
		"it bound the object and says so":                {own: " shop/wp", earlier: "shop/wp shop/wp bound", want: "shop/wp shop/wp bound"},
		"it bound the object, whose label changed":       {own: " shop/wp", earlier: "shop/wp", want: "shop/wp"},
		"the same, with the label":                       {own: " shop/next", earlier: "shop/wp shop/next", want: "shop/wp shop/next"},
		"it bound the object to another one":             {own: "shop/wp shop/wp bound", earlier: "shop/next shop/next bound", want: "shop/next shop/next bound"},
		"it wrote the same of another label":             {own: " shop/wp", earlier: " shop/next", want: " shop/next"},
		"it heard late of the label":                     {own: "shop/wp shop/wp bound", earlier: "", want: "shop/wp shop/wp bound"},
		"it heard late of a label, after it went direct": {own: "shop/wp shop/next", earlier: "", want: "shop/wp shop/next"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVersions(t)
			v.change(map[string]string{}, func(kept map[string]string) { kept[object] = c.own })
			waiting := map[string]string{}
			if !c.gone {
				waiting[object] = c.earlier
			}
			text, err := json.Marshal(waiting)
			if err != nil {
				t.Fatal(err)
			}
			v.write("waiting", string(text))
			// Whoever starts reads that, and so do those that run, whatever is written of others.
			v.change(map[string]string{object: c.want}, func(kept map[string]string) { kept["Service shop/other"] = " shop/wp" })
			v.change(map[string]string{object: c.want, "Service shop/other": " shop/wp"}, func(map[string]string) {})
		})
	}
}

// The line of an object that may go stays for ten minutes. It takes off no line of a later label.
func TestAnObjectThatMayGoDoesNotTakeOffTheLineOfALaterLabel(t *testing.T) {
	v := newVersions(t)
	v.change(map[string]string{}, func(kept map[string]string) {
		kept["Service shop/web"], kept["Service shop/late"] = "shop/wp shop/wp bound", "shop/wp shop/wp bound"
	})
	// One of the first version has heard of a later label of the one, and only now of the label of the other.
	v.write("waiting", `{"Service shop/late":"","Service shop/web":"shop/wp"}`)
	v.change(map[string]string{"Service shop/web": "shop/wp shop/wp bound", "Service shop/late": "shop/wp shop/wp bound"}, func(kept map[string]string) {
		kept["Service shop/other"] = " shop/wp"
	})
	v.is("waiting", `{"Service shop/other":"","Service shop/web":"shop/wp"}`)
	v.change(map[string]string{"Service shop/web": "shop/wp shop/wp bound", "Service shop/late": "shop/wp shop/wp bound", "Service shop/other": " shop/wp"}, func(kept map[string]string) {
		kept["Service shop/web"] = "shop/next shop/next bound"
	})
	v.is("waiting", `{"Service shop/other":""}`)
}

func TestAllThatIsKeptFitsIntoOneObject(t *testing.T) {
	const bytes, metadata = 1 << 20, 16 << 10 // what the API server takes of one
	if all := MaxAddresses + 2*compile.MaxWaiting; all > bytes-metadata {
		t.Errorf("it may be %d bytes", all)
	}
}
