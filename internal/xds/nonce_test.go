package xds

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"lateen.dev/lateen/internal/resourcekind"
)

func TestNonceReadsBackWhatItWrote(t *testing.T) {
	for _, more := range []bool{false, true} {
		want := Nonce{Epoch: "0a1b2c3d", Generation: 18446744073709551615, Chunk: 7, More: more}
		got, err := ParseNonce(want.String())
		if err != nil || got != want {
			t.Errorf("ParseNonce(%q) = %v, %v", want.String(), got, err)
		}
	}
}

func TestNonceRefusesAnythingElse(t *testing.T) {
	for _, s := range []string{"", ".", "..", "e.1", "e.1.2.3", ".1.2", "e.x.2", "e.1.x", "e.-1.2", "e.1.18446744073709551616", "e.1.2++", "e.1+.2", "+"} {
		if n, err := ParseNonce(s); err == nil {
			t.Errorf("ParseNonce(%q) = %v, want an error", s, n)
		}
	}
}

func FuzzNonce(f *testing.F) {
	f.Add("e.1.2")
	f.Add("e.1.2+")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNonce(s)
		if err != nil {
			return
		}
		again, err := ParseNonce(n.String())
		if err != nil || again != n {
			t.Errorf("%q reads as %v and then as %v, %v", s, n, again, err)
		}
	})
}

func TestMarksEveryResponseButTheLastOfALargeFirstAnswer(t *testing.T) {
	w := newWorld(t)
	for i := range 20 {
		w.apply(w.pod(fmt.Sprint("pod-", i), fmt.Sprint("10.0.0.", i), 1, nil))
	}
	limits := DefaultLimits
	limits.ResponseBytes = 200
	c := w.connect(limits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	var addresses []Nonce
	for _, r := range c.settle() {
		n, err := ParseNonce(r.Nonce)
		if err != nil {
			t.Fatal(err)
		}
		if r.TypeUrl == resourcekind.Address {
			addresses = append(addresses, n)
		} else if n.More {
			t.Errorf("policies: %s promises more, and there are none", r.Nonce)
		}
	}
	if len(addresses) < 3 {
		t.Fatalf("%d responses; the test needs several", len(addresses))
	}
	for i, n := range addresses {
		if n.More != (i < len(addresses)-1) {
			t.Errorf("response %d of %d has nonce %s", i+1, len(addresses), n)
		}
	}
	w.apply(w.pod("pod-1", "10.0.0.1", 2, nil))
	if r := c.receive(); r == nil || strings.HasSuffix(r.Nonce, moreMark) {
		t.Errorf("got %v, want one response that is the whole of a change", r)
	}
}

func TestSaysSoWhenWhatItPromisedIsNoLongerToBeSaid(t *testing.T) {
	w := newWorld(t)
	w.apply(w.pod("a", "10.0.0.1", 1, nil))
	w.apply(w.pod("b", "10.0.0.2", 1, nil))
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	w.apply(w.pod("a", "10.0.0.1", 2, nil))
	w.apply(w.pod("b", "10.0.0.2", 2, nil))
	limits := DefaultLimits
	limits.ResponseBytes = 1
	c.reconnect(limits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	var first *discovery.DeltaDiscoveryResponse
	for first == nil || first.TypeUrl != resourcekind.Address {
		if first = c.receive(); first == nil {
			t.Fatal("no answer")
		}
		if first.TypeUrl == resourcekind.Authorization {
			c.answer(resourcekind.Authorization, "")
		}
	}
	if names := resourceNames(first); len(names) != 1 || names[0] != "a" || !strings.HasSuffix(first.Nonce, moreMark) {
		t.Fatalf("got %v with nonce %s, want one of two with the mark", names, first.Nonce)
	}
	w.apply(w.pod("b", "10.0.0.2", 1, nil)) // what the client has
	c.answer(resourcekind.Address, "")
	if r := c.receive(); r == nil || len(r.Resources) != 0 || strings.HasSuffix(r.Nonce, moreMark) {
		t.Fatalf("got %v, want an answer without content or mark", r)
	}
}

// Who has the nonce has the rest, and no two responses' chunks tell of the next one's.
func TestTheNonceEndsItsResponse(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service("a", "10.0.0.1", 1), w.service("b", "10.0.0.2", 1))
	r := Response{Type: resourcekind.Address, Nonce: Nonce{Epoch: "e", Generation: 1, Chunk: 7}, Resources: w.log.Live(resourcekind.Address), Removed: []string{"c"}}
	if frame := string(r.Frame().Materialize()); !strings.HasSuffix(frame, r.Nonce.String()) {
		t.Errorf("%q does not end in its nonce", frame)
	}
	seen := map[uint64]bool{}
	for range 100 {
		if n := stride(); n>>40 != 0 || seen[n] {
			t.Fatalf("a stride of %d", n)
		} else {
			seen[n] = true
		}
	}
}
