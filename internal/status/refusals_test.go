package status

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/xds"
)

func refusing(node string, nacks ...xds.Nack) xds.ClientState {
	return xds.ClientState{Client: xds.Client{Node: node}, Types: []xds.State{{Type: log.AuthorizationType, Refused: nacks}}}
}

func TestWhatProxiesRefuseIsSaidOfTheirObjects(t *testing.T) {
	a := log.Source{Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}
	b := log.Source{Kind: "PeerAuthentication", Namespace: "shop", Name: "b"}
	resources := map[string]*log.Resource{"shop/a~0a1b2c3d": {Name: "shop/a~0a1b2c3d", Sources: []log.Source{a}}, "shop/b": {Name: "shop/b", Sources: []log.Source{b}},
		"shop/both": {Name: "shop/both", Sources: []log.Source{a, b}}}
	find := func(_, name string) *log.Resource { return resources[name] }
	many := []xds.ClientState{}
	for i := range 9 {
		many = append(many, refusing(fmt.Sprint("n", i), xds.Nack{Message: "no", Names: []string{"shop/b"}, Named: true}))
	}
	tests := map[string]struct {
		clients []xds.ClientState
		want    map[log.Source]string
	}{
		"nobody":       {nil, nil},
		"nothing":      {[]xds.ClientState{refusing("n1")}, nil},
		"gone already": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/x: no", Names: []string{"shop/x"}, Named: true})}, nil},
		"one": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/a~0a1b2c3d: no scope 9", Names: []string{"shop/a~0a1b2c3d"}, Named: true}), refusing("n2")},
			map[log.Source]string{a: "the proxy of node n1 refuses it: shop/a: no scope 9"}},
		"two proxies": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/b: x", Names: []string{"shop/b"}, Named: true}), refusing("n2", xds.Nack{Message: "shop/b: y", Names: []string{"shop/b"}, Named: true})},
			map[log.Source]string{b: "the proxy of node n1 refuses it: shop/b: x; the proxy of node n2 refuses it: shop/b: y"}},
		"each its own part": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/a~0a1b2c3d: x; and y; shop/b: z", Names: []string{"shop/a~0a1b2c3d", "shop/b"}, Named: true})},
			map[log.Source]string{a: "the proxy of node n1 refuses it: shop/a: x; and y", b: "the proxy of node n1 refuses it: shop/b: z"}},
		"made of two": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "shop/both: x", Names: []string{"shop/both"}, Named: true})},
			map[log.Source]string{a: "the proxy of node n1 refuses it: shop/both: x", b: "the proxy of node n1 refuses it: shop/both: x"}},
		"unnamed": {[]xds.ClientState{refusing("n1", xds.Nack{Message: "oops", Names: []string{"shop/b"}})},
			map[log.Source]string{b: "the proxy of node n1 refuses a response that it came in, without naming what is wrong: oops"}},
		"many": {many, map[log.Source]string{b: strings.Join([]string{"the proxy of node n0 refuses it: no", "the proxy of node n1 refuses it: no", "the proxy of node n2 refuses it: no",
			"the proxy of node n3 refuses it: no", "the proxy of node n4 refuses it: no", "and 4 more"}, "; ")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := refusals(tt.clients, 7, find)
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
