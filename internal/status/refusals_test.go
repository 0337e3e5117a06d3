package status

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

func refusing(node string, nacks ...xds.Nack) xds.ClientState {
	return xds.ClientState{Client: xds.Client{Node: node}, Types: []xds.State{{Type: resourcekind.Authorization, Refused: nacks}}}
}

func TestWhatProxiesRefuseIsSaidOfTheirObjects(t *testing.T) {
	a := resourcelog.Source{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}
	b := resourcelog.Source{Kind: "PeerAuthentication", Namespace: "shop", Name: "b"}
	resources := map[string]*resourcelog.Resource{"shop/a~0a1b2c3d": {Name: "shop/a~0a1b2c3d", Sources: []resourcelog.Source{a}}, "shop/b": {Name: "shop/b", Sources: []resourcelog.Source{b}},
		"shop/both": {Name: "shop/both", Sources: []resourcelog.Source{a, b}}}
	find := func(_, name string) *resourcelog.Resource { return resources[name] }
	many := []xds.ClientState{}
	for i := range 9 {
		many = append(many, refusing(fmt.Sprint("n", i), xds.Nack{Message: "shop/b: no", Names: []string{"shop/b"}}))
	}
	tests := map[string]struct {
		clients []xds.ClientState
		want    map[resourcelog.Source]string
	}{
		"nobody":       {nil, nil},
		"nothing":      {[]xds.ClientState{refusing("n1")}, nil},
		"gone already": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/x: no", Names: []string{"shop/x"}})}, nil},
		"one": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/a~0a1b2c3d: no scope 9", Names: []string{"shop/a~0a1b2c3d"}}), refusing("n2")},
			map[resourcelog.Source]string{a: "the proxy of node n1 refuses it: shop/a: no scope 9"}},
		"two proxies": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/b: x", Names: []string{"shop/b"}}), refusing("n2", xds.Nack{Message: "shop/b: y", Names: []string{"shop/b"}})},
			map[resourcelog.Source]string{b: "the proxy of node n1 refuses it: shop/b: x; the proxy of node n2 refuses it: shop/b: y"}},
		"each its own part": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/a~0a1b2c3d: x; and y; shop/b: z", Names: []string{"shop/a~0a1b2c3d", "shop/b"}})},
			map[resourcelog.Source]string{a: "the proxy of node n1 refuses it: shop/a: x; and y", b: "the proxy of node n1 refuses it: shop/b: z"}},
		"made of two": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/both: x", Names: []string{"shop/both"}})},
			map[resourcelog.Source]string{a: "the proxy of node n1 refuses it: shop/both: x", b: "the proxy of node n1 refuses it: shop/both: x"}},
		"said of others only": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/a~0a1b2c3d: secret; and 7 more", Names: []string{"shop/a~0a1b2c3d", "shop/b"}})},
			map[resourcelog.Source]string{a: "the proxy of node n1 refuses it: shop/a: secret", b: "the proxy of node n1 refuses it and does not say why; lateen status has what it says"}},
		"many": {many, map[resourcelog.Source]string{b: strings.Join([]string{"the proxy of node n0 refuses it: shop/b: no", "the proxy of node n1 refuses it: shop/b: no", "the proxy of node n2 refuses it: shop/b: no",
			"the proxy of node n3 refuses it: shop/b: no", "the proxy of node n4 refuses it: shop/b: no", "and 4 more"}, "; ")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Refusals(tt.clients, 7, find)
			if len(got) != len(tt.want) {
				t.Errorf("got %v", got)
			}
			for source, message := range tt.want {
				if c := got[source]; c.Type != "lateen.dev/Programmed" || c.Status != model.False || c.Reason != "RefusedByProxy" || c.Message != message || c.Generation != 7 {
					t.Errorf("%v: %+v, want %q", source, c, message)
				}
			}
		})
	}
}

// An object that a proxy may mean is not known to be in force. The proxy's words about other objects are left out of its condition.
func TestWhatAProxyMayRefuseIsUnknown(t *testing.T) {
	a := resourcelog.Source{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}
	b := resourcelog.Source{Kind: "PeerAuthentication", Namespace: "other", Name: "b"}
	resources := map[string]*resourcelog.Resource{"shop/a": {Name: "shop/a", Sources: []resourcelog.Source{a}}, "other/b": {Name: "other/b", Sources: []resourcelog.Source{b}}}
	find := func(_, name string) *resourcelog.Resource { return resources[name] }
	unnamed := xds.Nack{Message: "secret", Unnamed: []string{"other/b", "shop/a", "gone/c"}, Others: 3}
	some := xds.Nack{Message: "shop/a: secret; and 1 more", Names: []string{"shop/a"}, Unnamed: []string{"other/b"}, Others: 1}
	type said struct {
		status model.Status
		reason string
	}
	tests := map[string]struct {
		nacks []xds.Nack
		want  map[resourcelog.Source]said
	}{
		"nothing is named":   {[]xds.Nack{unnamed}, map[resourcelog.Source]said{a: {model.Unknown, "RefusalUnnamed"}, b: {model.Unknown, "RefusalUnnamed"}}},
		"not all is named":   {[]xds.Nack{some}, map[resourcelog.Source]said{a: {model.False, "RefusedByProxy"}, b: {model.Unknown, "MayBeRefused"}}},
		"both, at one proxy": {[]xds.Nack{some, unnamed}, map[resourcelog.Source]said{a: {model.False, "RefusedByProxy"}, b: {model.Unknown, "MayBeRefused"}}},
	}
	for name, tt := range tests {
		got := Refusals([]xds.ClientState{refusing("n1", tt.nacks...)}, 7, find)
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %v", name, got)
		}
		for source, want := range tt.want {
			c := got[source]
			if c.Type != "lateen.dev/Programmed" || c.Status != want.status || c.Reason != want.reason || !strings.Contains(c.Message, "the proxy of node n1 refuses ") {
				t.Errorf("%s: %v: %+v, want %v", name, source, c, want)
			}
			if want.status == model.Unknown && (strings.Contains(c.Message, "secret") || strings.Contains(c.Message, "shop/a") || !strings.Contains(c.Message, "is not known")) {
				t.Errorf("%s: %v is told %q", name, source, c.Message)
			}
		}
	}
}
