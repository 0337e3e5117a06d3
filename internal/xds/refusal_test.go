package xds

import (
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/log"
)

func TestBlamed(t *testing.T) {
	names := []string{"shop/web", "shop/web-2", "Kubernetes//Pod/shop/web"}
	for message, want := range map[string][]string{
		"shop/web-2: no such scope":                   {"shop/web-2"},
		"shop/web: no such scope":                     {"shop/web"},
		"no use for shop/web.":                        {"shop/web"},
		"no use for shop/web.example.com":             nil,
		"Kubernetes//Pod/shop/web is odd":             {"Kubernetes//Pod/shop/web"},
		"shop/web-2 and shop/web, both":               {"shop/web", "shop/web-2"},
		"\"shop/web\"":                                {"shop/web"},
		"something is wrong":                          nil,
		"shop/webshop/web x":                          nil,
		"shop/web-2 before; Kubernetes//Pod/shop/web": {"shop/web-2", "Kubernetes//Pod/shop/web"},
	} {
		found, named := blamed(message, names)
		if named != (want != nil) || named && !slices.Equal(found, want) || !named && !slices.Equal(found, names) {
			t.Errorf("%q blames %v (named: %v), want %v", message, found, named, want)
		}
	}
}

// A refusal is of one version: it holds until the mesh has another one or none, or the client takes what it was given.
func TestARefusalEndsWithTheVersionThatItIsOf(t *testing.T) {
	l := log.New(time.Now, log.AddressType, log.AuthorizationType)
	generation := uint64(0)
	put := func(name, content string) {
		t.Helper()
		r, err := log.Encode(log.AuthorizationType, name, nil, nil, &security.Authorization{Name: content})
		if err != nil {
			t.Fatal(err)
		}
		generation++
		l.Append(generation, []log.Change{{Type: log.AuthorizationType, Name: name, Resource: r}})
	}
	s := NewSession(l, "e", DefaultLimits)
	defer s.Close()
	handle := func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = log.AuthorizationType
		if err := s.Handle(r, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(complaint string) {
		t.Helper()
		response := s.Next(time.Now())
		if response == nil {
			t.Fatal("nothing to answer")
		}
		r := &discovery.DeltaDiscoveryRequest{ResponseNonce: response.Nonce.String()}
		if complaint != "" {
			r.ErrorDetail = &rpcstatus.Status{Message: complaint}
		}
		handle(r)
	}
	refused := func() (names []string) {
		for _, n := range s.States()[0].Refused {
			if !n.Named {
				t.Error("a refusal that names a resource does not say so")
			}
			names = append(names, n.Names...)
		}
		return names
	}
	put("shop/a", "1")
	put("shop/b", "1")
	handle(&discovery.DeltaDiscoveryRequest{})
	answer("shop/a: no")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Fatalf("refused are %v", got)
	}
	put("shop/b", "2")
	answer("")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Errorf("what the client did not take was forgotten with another resource: %v", got)
	}
	put("shop/a", "2")
	if got := refused(); len(got) != 0 {
		t.Errorf("a version that is gone is still refused: %v", got)
	}
	answer("shop/a: no")
	if got := refused(); !slices.Equal(got, []string{"shop/a"}) {
		t.Errorf("refused are %v", got)
	}
	put("shop/a", "3")
	answer("")
	if got := refused(); len(got) != 0 {
		t.Errorf("a version that was taken is refused: %v", got)
	}
	put("shop/a", "4")
	answer("shop/a: no")
	generation++
	l.Append(generation, []log.Change{{Type: log.AuthorizationType, Name: "shop/a"}})
	if got := refused(); len(got) != 0 {
		t.Errorf("what the mesh no longer has is refused: %v", got)
	}
}
