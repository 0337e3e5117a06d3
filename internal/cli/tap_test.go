package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// A connection of one node must not wait until the engine has explained the refusal of another node's.
func TestTapShowsConnectionsWhileAReasonIsAsked(t *testing.T) {
	f := newFake(t)
	asked, release := make(chan struct{}, 100), make(chan struct{})
	f.present = func() []api.Object {
		asked <- struct{}{}
		<-release
		return nil
	}
	defer close(release)
	inOrder := func() bool {
		t.Helper()
		for len(asked) > 0 {
			<-asked
		}
		var out heard
		a := &app{Env: Env{Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) }, Now: time.Now, Stdout: &out}}
		tap := &tapped{app: a, json: json.NewEncoder(&out), open: map[string]pending{}, seen: newTally(), reasons: &reasons{app: a, ctx: t.Context()}}
		const allowed, refused = `"reason":"allowed by default/a"`, `"reason":"plaintext refused: a PeerAuthentication is STRICT"`
		type line struct {
			want string
			err  error
		}
		told := make(chan line, 2)
		go func() {
			told <- line{refused, tap.tell(api.Connection{Node: "n1", ID: "1", Event: "closed", Direction: "inbound", Flags: "DENY", Error: "explicitly denied by: x",
				Destination: api.ConnectionEnd{Namespace: "default", Workload: "web-1", Address: "10.0.0.1:80"}, Denial: &api.Denial{By: []string{"root/istio_converted_static_strict"}}})}
		}()
		<-asked
		go func() {
			told <- line{allowed, tap.tell(api.Connection{Node: "n2", ID: "2", Event: "closed", AllowedBy: "default/a"})}
		}()
		var order []string
		for range 2 {
			select {
			case l := <-told:
				if order = append(order, l.want); l.err != nil || !strings.Contains(out.String(), l.want) {
					t.Errorf("%v: %s does not hold %s", l.err, out.String(), l.want)
				}
			case <-time.After(5 * reasonsPatience):
				t.Fatalf("it waits for the engine; so far: %s", out.String())
			}
		}
		return order[0] == allowed
	}
	// A line that waits for the reason comes behind it each time. A busy machine delays one now and then.
	const runs = 5
	good := 0
	for range runs {
		if inOrder() {
			good++
		}
	}
	if good < 3 {
		t.Errorf("in %d of %d runs a connection waits until the reason of another one's is known", runs-good, runs)
	}
}

func TestTapDoesNotSuggestItself(t *testing.T) {
	denied := newTally()
	denied.ended, denied.verdicts[api.DeniedByPeer] = 1, 1
	for name, tt := range map[string]struct {
		seen   *tally
		filter api.ConnectionFilter
		want   string
	}{
		"nothing of a namespace":   {newTally(), api.ConnectionFilter{Namespace: "default"}, "lateen status   # which pods are in the mesh; lateen tap -A"},
		"nothing of all":           {newTally(), api.ConnectionFilter{}, "lateen status   # which pods are in the mesh"},
		"nothing of a service":     {newTally(), api.ConnectionFilter{Service: "echo"}, "lateen status   # which pods are in the mesh; lateen tap -A"},
		"denied":                   {denied, api.ConnectionFilter{Only: "denied"}, "lateen tap -A --denied --direction inbound   # names the policies"},
		"denied, where it is told": {denied, api.ConnectionFilter{Only: "denied", Direction: "inbound"}, "lateen top"},
	} {
		tap := &tapped{app: &app{Env: Env{Connect: api.New}}, seen: tt.seen}
		if got := strings.Join(tap.suggestions(tt.filter), "; "); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestTapWarnsOfANamespaceThatDoesNotExist(t *testing.T) {
	for namespace, want := range map[string]bool{"nope": true, "default": false} {
		f := newFake(t)
		f.objects = sampleObjects()
		r := f.run("", "tap", "-n", namespace, "--for", "100ms")
		if got := strings.Contains(r.stderr, "warning: there is no namespace "+namespace+"; lateen get namespaces"); got != want {
			t.Errorf("%s: %+v", namespace, r)
		}
	}
}

// A name without a namespace is what commands without -n take it for, where that can be.
func TestTheNamespaceThatTapLeavesOut(t *testing.T) {
	for _, tt := range []struct {
		want string
		pods map[string]bool
	}{
		{"", map[string]bool{}},
		{"default", map[string]bool{"default": true, "idle": true}},
		{"only", map[string]bool{"only": true}},
		{"", map[string]bool{"shop": true, "idle": true}},
	} {
		if got := homeAmong("default", tt.pods); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.pods, got, tt.want)
		}
	}
}
