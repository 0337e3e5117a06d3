package compile

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

// slowClient is a node proxy that takes one response at a time, when it pleases, and enforces what it has so far.
type slowClient struct {
	t        *testing.T
	log      *resourcelog.Log
	session  *xds.Session
	now      time.Time
	policies map[string]*security.Authorization
	named    []string // policies that the pod's Address names
	pod      string
}

func connect(t *testing.T, l *resourcelog.Log, pod string) *slowClient {
	limits := xds.DefaultLimits
	limits.ResponseBytes = 1 // every resource and every removal is a response of its own
	c := &slowClient{t: t, log: l, session: xds.NewSession(l, "epoch", limits), now: time.Unix(0, 0), policies: map[string]*security.Authorization{}, pod: pod}
	t.Cleanup(c.session.Close)
	for _, typeURL := range []string{resourcekind.Address, resourcekind.Authorization} {
		if err := c.session.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL}, c.now); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// step takes and acknowledges one response; it reports whether there was one.
func (c *slowClient) step() bool {
	c.now = c.now.Add(time.Second)
	r := c.session.Next(c.now)
	if r == nil {
		return false
	}
	for _, resource := range r.Resources {
		switch r.Type {
		case resourcekind.Authorization:
			c.policies[resource.Name] = unpack[*security.Authorization](c.t, resource)
		case resourcekind.Address:
			if resource.Name == c.pod {
				c.named = unpack[*workload.Address](c.t, resource).GetWorkload().GetAuthorizationPolicies()
			}
		}
	}
	for _, name := range r.Removed {
		delete(c.policies, name)
	}
	if err := c.session.Handle(&discovery.DeltaDiscoveryRequest{TypeUrl: r.Type, ResponseNonce: r.Nonce.String()}, c.now); err != nil {
		c.t.Fatal(err)
	}
	return true
}

func unpack[M proto.Message](t *testing.T, r *resourcelog.Resource) M {
	t.Helper()
	d, err := r.Decode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Resource.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m.(M)
}

// denied says whether a DENY policy covers the pod, as a proxy that skips unknown policies sees it.
func (c *slowClient) denied() bool {
	for name, p := range c.policies {
		covers := p.GetScope() != security.Scope_WORKLOAD_SELECTOR || slices.Contains(c.named, name)
		if covers && p.GetAction() == security.Action_DENY && len(p.GetRules()) > 0 {
			return true
		}
	}
	return false
}

// A policy that denies before and after a change of its scope denies all the while, however slowly a proxy learns of it.
func TestAPolicyWhoseScopeChangesIsNeverOutOfForce(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := newPlane(t)
		p.put(pod("shop", "web-1", "10.0.0.1", "web") + authorization("shop", "nobody", "action: DENY, rules: [{}]"))
		c := connect(t, p.log, mesh.PodResource("shop", "web-1"))
		for c.step() {
		}
		if !c.denied() {
			t.Fatal("the policy is not in force to begin with")
		}
		for range 30 {
			if random.IntN(3) == 0 {
				selector := ""
				if random.IntN(2) == 0 {
					selector = "selector: {matchLabels: {app: web}}, "
				}
				p.put(authorization("shop", "nobody", selector+"action: DENY, rules: [{}]"))
			} else {
				c.step()
			}
			if !c.denied() {
				t.Fatalf("seed %d: nothing denies; policies %v, the pod names %v", seed, c.policies, c.named)
			}
		}
		for c.step() {
			if !c.denied() {
				t.Fatalf("seed %d: nothing denies; policies %v, the pod names %v", seed, c.policies, c.named)
			}
		}
		if len(c.policies) != 1 {
			t.Errorf("seed %d: the former scope's resource stays: %v", seed, c.policies)
		}
	}
}
