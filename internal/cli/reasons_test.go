package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func peerAuthentication(namespace, name, spec string) api.Object {
	return api.Object{Key: api.Key{Kind: "PeerAuthentication", Namespace: namespace, Name: name},
		Raw: []byte(`{"metadata": {"namespace": "` + namespace + `", "name": "` + name + `"}, "spec": ` + spec + `}`)}
}

func TestReasonsNameTheObjectThatItsAuthorWrote(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{
		{Key: api.Key{Kind: "Pod", Namespace: "default", Name: "echo-1"}, Raw: []byte(`{"metadata": {"namespace": "default", "name": "echo-1", "labels": {"app": "echo"}}}`)},
		{Key: api.Key{Kind: "Pod", Namespace: "default", Name: "web-1"}, Raw: []byte(`{"metadata": {"namespace": "default", "name": "web-1", "labels": {"app": "web"}}}`)},
		peerAuthentication("root", "mesh", `{"mtls": {"mode": "STRICT"}}`),
		peerAuthentication("default", "all", `{"mtls": {"mode": "STRICT"}}`),
		peerAuthentication("default", "echo-ports", `{"selector": {"matchLabels": {"app": "echo"}}, "mtls": {"mode": "PERMISSIVE"}, "portLevelMtls": {"8080": {"mode": "STRICT"}}}`),
		peerAuthentication("open", "none", `{"mtls": {"mode": "PERMISSIVE"}}`),
	}
	f.root = "root"
	clock := now
	a := &app{Env: Env{Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) }, Now: func() time.Time { return clock }}}
	r := &reasons{app: a, ctx: t.Context()}
	to := func(namespace, pod string, c api.Connection) api.Connection {
		c.Event, c.Direction = "closed", "inbound"
		c.Destination = api.ConnectionEnd{Namespace: namespace, Workload: pod, Address: "10.0.0.1:8080"}
		return c
	}
	by := func(names ...string) api.Connection {
		return api.Connection{Flags: "DENY", Error: "explicitly denied by: x", Denial: &api.Denial{By: names}}
	}
	cut := by("default/x")
	cut.State = "cut"
	for name, test := range map[string]struct {
		seen         api.Connection
		want, object string
	}{
		"the namespace's": {to("default", "web-1", by("root/istio_converted_static_strict")), "plaintext refused: PeerAuthentication default/all is STRICT", "default/peerauthentication/all"},
		"the mesh's":      {to("third", "web-1", by("root/istio_converted_static_strict")), "plaintext refused: PeerAuthentication root/mesh is STRICT", "root/peerauthentication/mesh"},
		"the port's": {to("default", "echo-1", by("default/converted_peer_authentication_echo-ports")),
			"plaintext refused: PeerAuthentication default/echo-ports is STRICT on port 8080", "default/peerauthentication/echo-ports"},
		"deleted meanwhile": {to("open", "web-1", by("root/istio_converted_static_strict")), "plaintext refused: a PeerAuthentication is STRICT", "peerauthentication/"},
		"inherited from the root namespace": {to("fourth", "web-1", by("fourth/converted_peer_authentication_part")),
			"plaintext refused: PeerAuthentication root/mesh is STRICT", "root/peerauthentication/mesh"},
		"inherited from an object that is gone": {to("open", "web-1", by("open/converted_peer_authentication_part")), "plaintext refused: PeerAuthentication open/part inherits STRICT", "open/peerauthentication/part"},
		"a policy":                              {to("default", "web-1", by("default/x")), "denied by AuthorizationPolicy default/x", "default/authorizationpolicy/x"},
		"a policy's change":                     {to("default", "web-1", cut), "ended after a change: denied by AuthorizationPolicy default/x", "default/authorizationpolicy/x"},
		"no match":                              {to("default", "web-1", api.Connection{Flags: "DENY", Denial: &api.Denial{NoneMatched: []string{"default/a", "root/b"}}}), "no rule of these ALLOW policies matches: default/a, root/b", "default/authorizationpolicy/a root/authorizationpolicy/b"},
		"no match, some not named":              {to("default", "web-1", api.Connection{Flags: "DENY", Denial: &api.Denial{NoneMatched: []string{"default/a"}, Unnamed: 3}}), "no rule of these ALLOW policies matches: default/a and 3 more", "default/authorizationpolicy/a"},
		"not read":                              {to("default", "web-1", api.Connection{Flags: "DENY", Denial: &api.Denial{NotKnown: []string{"default/a"}}}), "the node proxy could not read AuthorizationPolicy default/a", "default/authorizationpolicy/a"},
		"in dry run":                            {to("default", "web-1", api.Connection{WouldDeny: &api.Denial{By: []string{"default/x"}}}), "dry run: AuthorizationPolicy default/x would deny", "default/authorizationpolicy/x"},
		"no match, in dry run":                  {to("default", "web-1", api.Connection{WouldDeny: &api.Denial{NoneMatched: []string{"default/a"}}}), "dry run: no rule of these ALLOW policies matches: default/a", "default/authorizationpolicy/a"},
		"at the client's end":                   {api.Connection{Event: "closed", Error: "401", DeniedByPeer: true}, "the server's node proxy denied it; its inbound line names the policy", ""},
		"a failure":                             {api.Connection{Event: "closed", Error: "no route"}, "no route", ""},
		"allowed":                               {to("default", "web-1", api.Connection{AllowedBy: "default/a"}), "allowed by default/a", ""},
		"an older proxy":                        {to("default", "web-1", api.Connection{Flags: "DENY", Error: "explicitly denied by: default/x"}), "explicitly denied by: default/x", ""},
	} {
		got := r.of(test.seen)
		var objects []string
		for _, o := range got.objects {
			objects = append(objects, o.String())
		}
		if got.Text() != test.want || strings.Join(objects, " ") != test.object {
			t.Errorf("%s: got %q of %q, want %q of %q", name, got.Text(), objects, test.want, test.object)
		}
	}
	asked := func() (n int) {
		for _, line := range f.asked {
			if strings.Contains(line, "kind=PeerAuthentication") {
				n++
			}
		}
		return n
	}
	before := asked()
	clock = clock.Add(time.Minute)
	for range 20 {
		r.of(to("default", "web-1", by("root/istio_converted_static_strict")))
	}
	if n := asked() - before; n != 1 {
		t.Errorf("20 refusals at once asked %d times for PeerAuthentications", n)
	}

	// An object that was made just before a connection explains its refusal, and one that was deleted does not.
	f.objects = append(f.objects, peerAuthentication("open", "made", `{"selector": {"matchLabels": {"app": "new"}}, "mtls": {"mode": "STRICT"}}`),
		api.Object{Key: api.Key{Kind: "Pod", Namespace: "open", Name: "new-1"}, Raw: []byte(`{"metadata": {"labels": {"app": "new"}}}`)})
	refused := to("open", "new-1", by("root/istio_converted_static_strict"))
	clock = clock.Add(reasonsLive)
	if got := r.of(refused).Text(); got != "plaintext refused: PeerAuthentication open/made is STRICT" {
		t.Errorf("got %q", got)
	}
	f.objects = slices.DeleteFunc(f.objects, func(o api.Object) bool { return o.Key.Name == "made" })
	clock = clock.Add(200 * time.Millisecond)
	if got := r.of(refused).Text(); strings.Contains(got, "open/made") {
		t.Errorf("a refusal names an object that was deleted before: %q", got)
	}
}
