package xds

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

func TestRandomConversationsEndInAgreement(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			tape := make([]byte, 600)
			for i := range tape {
				tape[i] = byte(rng.Uint32())
			}
			converse(t, tape)
		})
	}
}

func FuzzConversation(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte("reconnect in the middle of a chunked answer"))
	f.Fuzz(func(t *testing.T, tape []byte) {
		if len(tape) > 2000 {
			return // long tapes find nothing that short ones do not
		}
		converse(t, tape)
	})
}

// FuzzRequest sends requests of any bytes: no panic, and whatever is answered decodes.
func FuzzRequest(f *testing.F) {
	for _, r := range []*discovery.DeltaDiscoveryRequest{
		{TypeUrl: resourcekind.Address},
		{TypeUrl: resourcekind.Authorization, ResponseNonce: "e.1.1"},
		{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}},
		{TypeUrl: resourcekind.Address, ResourceNamesSubscribe: []string{"/10.0.0.1", "svc"}, InitialResourceVersions: map[string]string{"pod": "x"}},
	} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		w := newWorld(t)
		w.apply(w.service("svc", "10.96.0.1", 1), w.pod("pod", "10.0.0.1", 1, nil, "svc"), w.policy("p", 1))
		s := NewSession(w.log, "e", Limits{ResponseBytes: 100, Names: 10, TypeGrace: time.Millisecond})
		defer s.Close()
		for _, data := range [][]byte{first, second, first} {
			req := &discovery.DeltaDiscoveryRequest{}
			if proto.Unmarshal(data, req) != nil {
				return
			}
			if s.Handle(req, w.now) != nil {
				return
			}
			w.now = w.now.Add(time.Second)
			for i := 0; ; i++ {
				r := s.Next(w.now)
				if r == nil {
					break
				}
				if i > 2 {
					t.Fatal("more responses than types without an answer")
				}
				if _, err := r.Message(); err != nil {
					t.Fatal(err)
				}
			}
			s.States()
			w.apply(w.service("svc", "10.96.0.1", int(w.generation)), gone(resourcekind.Address, "pod"))
		}
	})
}

// converse plays a tape: changes of the mesh, answers, refusals and lost streams of two clients, in the tape's order. In the end
// both clients must know what the log says, and at no time may a workload name a policy that a client does not have.
func converse(t testing.TB, tape []byte) {
	w := newWorld(t)
	read := func() int {
		if len(tape) == 0 {
			return 0
		}
		b := tape[0]
		tape = tape[1:]
		return int(b)
	}
	limits := func() Limits {
		return Limits{ResponseBytes: 1 + read()*4, Names: 1000, TypeGrace: time.Millisecond}
	}
	policies := map[string]bool{}
	pods := map[string][]string{} // pod → policies it names
	all := w.connect(limits())
	some := w.connect(limits())
	subscribed := map[string]bool{}
	follow := func() {
		all.follow(resourcekind.Address)
		all.follow(resourcekind.Authorization)
	}
	ask := func() {
		some.follow(resourcekind.Authorization)
		versions := map[string]string{}
		for n, r := range some.state[resourcekind.Address] {
			versions[n] = r.Version
		}
		req := &discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address, InitialResourceVersions: versions,
			ResourceNamesSubscribe: []string{"*"}, ResourceNamesUnsubscribe: []string{"*"}}
		for n := range subscribed {
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, n)
		}
		slices.Sort(req.ResourceNamesSubscribe)
		if err := some.send(req); err != nil {
			t.Fatal(err)
		}
	}
	follow()
	ask()
	for serial := 1; len(tape) > 0; serial++ {
		switch op := read() % 12; op {
		case 0, 1, 2: // one generation: policies come and go, pods follow
			var changes []resourcelog.Change
			for range 1 + read()%3 {
				p := fmt.Sprintf("policy-%d", read()%5)
				if policies[p] && read()%2 == 0 {
					delete(policies, p)
					changes = append(changes, gone(resourcekind.Authorization, p))
					for pod, named := range pods {
						if slices.Contains(named, p) {
							pods[pod] = slices.DeleteFunc(slices.Clone(named), func(n string) bool { return n == p })
							changes = append(changes, w.pod(pod, "10.0.0."+pod[4:], serial, pods[pod], "svc"))
						}
					}
				} else {
					policies[p] = true
					changes = append(changes, w.policy(p, serial))
				}
			}
			w.apply(changes...)
		case 3, 4, 5: // a pod comes, changes or goes
			pod := fmt.Sprintf("pod-%d", read()%8)
			if _, ok := pods[pod]; ok && read()%3 == 0 {
				delete(pods, pod)
				w.apply(gone(resourcekind.Address, pod))
				break
			}
			pods[pod] = nil
			for i := range 5 {
				if p := fmt.Sprintf("policy-%d", i); policies[p] && read()%2 == 0 {
					pods[pod] = append(pods[pod], p)
				}
			}
			w.apply(w.pod(pod, "10.0.0."+pod[4:], read()%3, pods[pod], "svc"))
		case 6:
			if read()%2 == 0 {
				w.apply(w.service("svc", "10.96.0.1", serial))
			} else {
				w.apply(gone(resourcekind.Address, "svc"))
			}
		case 7:
			all.receive()
			some.receive()
		case 8:
			all.answer(resourcekind.Address, "")
			some.answer(resourcekind.Authorization, "")
		case 9:
			all.answer(resourcekind.Authorization, "")
			some.answer(resourcekind.Address, "refused")
		case 10:
			if read()%2 == 0 {
				all.reconnect(limits())
				follow()
			} else {
				some.reconnect(limits())
				ask()
			}
		case 11:
			name := []string{"/10.0.0.1", "pod-2", "/10.96.0.1", "svc", "pod-3", "nothing"}[read()%6]
			req := &discovery.DeltaDiscoveryRequest{TypeUrl: resourcekind.Address}
			if subscribed[name] {
				delete(subscribed, name)
				req.ResourceNamesUnsubscribe = []string{name}
			} else {
				subscribed[name] = true
				req.ResourceNamesSubscribe = []string{name}
			}
			if err := some.send(req); err != nil {
				t.Fatal(err)
			}
			if len(req.ResourceNamesUnsubscribe) > 0 {
				some.dropUncovered(subscribed)
			}
		}
		w.now = w.now.Add(time.Millisecond)
	}
	all.settle()
	all.checkEqual()
	some.settle()
	for name := range subscribed {
		for _, r := range w.log.Lookup(resourcekind.Address, name) {
			if got := some.state[resourcekind.Address][r.Name]; got == nil || got.Version != r.Version {
				t.Errorf("on demand: client has %v of %s, asked for as %s; want %s", got.GetVersion(), r.Name, name, r.Version)
			}
		}
	}
	for name, r := range some.state[resourcekind.Address] {
		if live := w.log.Get(resourcekind.Address, name); live == nil || live.Version != r.Version {
			t.Errorf("on demand: client kept a stale %s", name)
		}
	}
}

// dropUncovered does what a client does that unsubscribes: it lets go of everything that its other subscriptions do not cover.
func (c *client) dropUncovered(subscribed map[string]bool) {
	covered := map[string]bool{}
	for n := range subscribed {
		for _, r := range c.w.log.Lookup(resourcekind.Address, n) {
			covered[r.Name] = true
		}
	}
	for n := range c.state[resourcekind.Address] {
		if !covered[n] {
			delete(c.state[resourcekind.Address], n)
		}
	}
}
