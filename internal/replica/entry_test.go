package replica

import (
	"testing"
	"time"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

var (
	entry     = model.ServiceEntryKey("shop", "api")
	unwritten = model.Condition{Type: "Accepted", Status: model.Unknown, Reason: wellknown.ReasonAddressPending, Message: "virtual addresses of 1 of its hosts are being written down"}
)

func addressed(address string) model.Condition {
	return model.Condition{Type: "Accepted", Status: model.True, Reason: "Accepted", Message: "a.example.com has the virtual addresses " + address}
}

func entryWith(labels map[string]string) model.Change {
	return model.Change{Key: entry, Object: &model.Object{Key: entry, Value: &networkingv1.ServiceEntry{
		ObjectMeta: metav1.ObjectMeta{Namespace: entry.Namespace, Name: entry.Name, UID: "u1", Generation: 1, Labels: labels}}}}
}

// looker looks when the test says so.
type looker struct {
	t       *testing.T
	store   *model.Store
	log     *resourcelog.Log
	local   *Local
	clients map[string]xds.ClientState
}

func newLooker(t *testing.T) *looker {
	l := &looker{t: t, store: model.NewStore(), log: resourcelog.New(time.Now, resourcekind.Mesh), clients: map[string]xds.ClientState{}}
	l.local = NewLocal(Sources{Store: l.store, Log: l.log, Refusals: func([]xds.ClientState) map[model.Key]model.Condition { return nil }, Clients: func() (out []xds.ClientState) {
		for _, c := range l.clients {
			out = append(out, c)
		}
		return out
	}})
	return l
}

// compile takes changes as a generation, in which the entry is compiled with this outcome.
func (l *looker) compile(said model.Condition, changes ...model.Change) uint64 {
	generation, _ := l.store.Apply(changes)
	said.Generation = generation
	l.store.SetConditions(entry, []model.Condition{said})
	l.log.Append(generation, nil)
	return generation
}

func (l *looker) acknowledge(node string, generation uint64) {
	l.clients[node] = xds.ClientState{Client: xds.Client{Node: node, Workload: node}, Connected: time.Unix(1, 0), Types: []xds.State{{Type: resourcekind.Address, AckedGeneration: generation}}}
	l.local.stirred.Store(true)
}

// waits says how many proxies the entry waits for.
func (l *looker) waits(want int, when string) {
	l.t.Helper()
	l.local.look()
	if got := l.local.known.objects[entry].Waiting; got != want {
		l.t.Errorf("%s: it waits for %d proxies, want %d", when, got, want)
	}
}

func TestAnEntryWaitsForTheProxiesToHaveItsVirtualAddresses(t *testing.T) {
	l := newLooker(t)
	l.acknowledge("n0", l.compile(unwritten))
	l.acknowledge("n1", l.compile(unwritten))
	l.local.look()
	first := l.compile(unwritten, entryWith(nil))
	l.acknowledge("n0", first)
	l.acknowledge("n1", first)
	l.waits(2, "while its addresses are written down")

	// They are published in a later generation.
	second := l.compile(addressed("240.240.0.1"))
	l.waits(2, "before any proxy has the addresses")
	l.acknowledge("n0", second)
	l.waits(1, "once one proxy has them")
	l.acknowledge("n1", second)
	l.waits(0, "once both have them")
	if len(l.local.pending) > 0 || l.local.interest.Load() {
		t.Errorf("answers still matter: %v", l.local.pending)
	}

	// Others ask for the address, and the entry gets another one.
	third := l.compile(addressed("240.240.0.2"))
	l.waits(2, "before any proxy has the other address")
	l.acknowledge("n0", third)
	l.acknowledge("n1", third)
	l.waits(0, "once both have the other address")

	// Its author is told the same, so no proxy need have heard of it.
	l.compile(addressed("240.240.0.2"), entryWith(map[string]string{"team": "a"}))
	l.waits(0, "after a change of a label")
	l.store.Apply([]model.Change{{Key: entry}})
	l.local.look()
	if len(l.local.said) > 0 {
		t.Errorf("what was said of an entry that is gone is kept: %v", l.local.said)
	}
}

func TestAddressesThatAreWrittenDownBetweenTwoLooksAreWaitedFor(t *testing.T) {
	l := newLooker(t)
	l.acknowledge("n0", l.compile(unwritten))
	l.local.look()
	first := l.compile(unwritten, entryWith(nil))
	second := l.compile(addressed("240.240.0.1"))
	l.acknowledge("n0", first)
	l.waits(1, "while the proxy has the entry without addresses")
	l.acknowledge("n0", second)
	l.waits(0, "once it has the addresses")
}

func TestAnEntryWithAddressesOfItsOwnWaitsForItsOwnGeneration(t *testing.T) {
	l := newLooker(t)
	l.acknowledge("n0", l.compile(unwritten))
	l.local.look()
	first := l.compile(model.Condition{Type: "Accepted", Status: model.True, Reason: "Accepted"}, entryWith(nil))
	l.waits(1, "before the proxy has it")
	l.acknowledge("n0", first)
	l.waits(0, "once the proxy has it")
}
