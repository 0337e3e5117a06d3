package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a log with a tiny mesh behind it and a clock that only moves when told.
type world struct {
	t          testing.TB
	log        *resourcelog.Log
	now        time.Time
	generation uint64
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: start}
	w.log = resourcelog.New(func() time.Time { return w.now }, resourcekind.Mesh)
	return w
}

func (w *world) apply(changes ...resourcelog.Change) {
	w.generation++
	w.log.Append(w.generation, changes)
}

// pod makes a workload that names policies and belongs to services.
func (w *world) pod(name, ip string, serial int, policies []string, services ...string) resourcelog.Change {
	msg := &workload.Address{Type: &workload.Address_Workload{Workload: &workload.Workload{
		Uid: name, Name: fmt.Sprint(serial), AuthorizationPolicies: policies,
	}}}
	return w.change(resourcekind.Address, name, []string{"/" + ip}, services, msg)
}

func (w *world) service(name, ip string, serial int) resourcelog.Change {
	msg := &workload.Address{Type: &workload.Address_Service{Service: &workload.Service{Name: name, Hostname: fmt.Sprint(serial)}}}
	return w.change(resourcekind.Address, name, []string{"/" + ip}, nil, msg)
}

func (w *world) policy(name string, serial int) resourcelog.Change {
	return w.change(resourcekind.Authorization, name, nil, nil, &security.Authorization{Name: name, Namespace: fmt.Sprint(serial)})
}

func (w *world) change(typeURL, name string, aliases, parents []string, msg proto.Message) resourcelog.Change {
	w.t.Helper()
	r, err := resourcelog.Encode(typeURL, name, aliases, parents, msg)
	if err != nil {
		w.t.Fatal(err)
	}
	return resourcelog.Change{Type: typeURL, Name: name, Resource: r}
}

func gone(typeURL, name string) resourcelog.Change {
	return resourcelog.Change{Type: typeURL, Name: name}
}

// client is the other side of a session, as the protocol describes it.
type client struct {
	w       *world
	session *Session
	state   map[string]map[string]*discovery.Resource // type → name → resource
	pending map[string]*discovery.DeltaDiscoveryResponse
}

func (w *world) connect(limits Limits) *client {
	return &client{w: w, session: NewSession(w.log, "e", limits), pending: map[string]*discovery.DeltaDiscoveryResponse{},
		state: map[string]map[string]*discovery.Resource{resourcekind.Address: {}, resourcekind.Authorization: {}}}
}

// reconnect loses the stream and keeps the state, as a proxy does.
func (c *client) reconnect(limits Limits) {
	c.session.Close()
	c.session = NewSession(c.w.log, "e", limits)
	c.pending = map[string]*discovery.DeltaDiscoveryResponse{}
}

func (c *client) send(req *discovery.DeltaDiscoveryRequest) error {
	return c.session.Handle(req, c.w.now)
}

// follow opens a type as a node proxy does: everything, with what is left from before.
func (c *client) follow(typeURL string) {
	c.w.t.Helper()
	versions := map[string]string{}
	for name, r := range c.state[typeURL] {
		versions[name] = r.Version
	}
	if err := c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: versions}); err != nil {
		c.w.t.Fatal(err)
	}
}

// receive takes one response, if there is one, and leaves it unanswered.
func (c *client) receive() *discovery.DeltaDiscoveryResponse {
	c.w.t.Helper()
	r := c.session.Next(c.w.now)
	if r == nil {
		return nil
	}
	msg, err := r.Message()
	if err != nil {
		c.w.t.Fatalf("response does not decode: %v", err)
	}
	if c.pending[msg.TypeUrl] != nil {
		c.w.t.Fatalf("a second response of type %s although %s is not answered", msg.TypeUrl, c.pending[msg.TypeUrl].Nonce)
	}
	c.pending[msg.TypeUrl] = msg
	for _, res := range msg.Resources {
		c.state[msg.TypeUrl][res.Name] = res
	}
	for _, name := range msg.RemovedResources {
		delete(c.state[msg.TypeUrl], name)
	}
	c.checkPolicies()
	return msg
}

// checkPolicies holds the promise that makes a proxy safe: it knows every policy that its workloads name.
func (c *client) checkPolicies() {
	c.w.t.Helper()
	for name, r := range c.state[resourcekind.Address] {
		msg, err := r.Resource.UnmarshalNew()
		if err != nil {
			c.w.t.Fatal(err)
		}
		for _, p := range msg.(*workload.Address).GetWorkload().GetAuthorizationPolicies() {
			if c.state[resourcekind.Authorization][p] == nil {
				c.w.t.Fatalf("workload %s names policy %s, which the client does not have", name, p)
			}
		}
	}
}

func (c *client) answer(typeURL string, refusal string) {
	c.w.t.Helper()
	p := c.pending[typeURL]
	if p == nil {
		return
	}
	delete(c.pending, typeURL)
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: p.Nonce}
	if refusal != "" {
		req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: refusal}
	}
	if err := c.send(req); err != nil {
		c.w.t.Fatal(err)
	}
}

// settle takes and acknowledges everything there is.
func (c *client) settle() (responses []*discovery.DeltaDiscoveryResponse) {
	c.w.t.Helper()
	for range 10000 {
		c.answer(resourcekind.Authorization, "")
		c.answer(resourcekind.Address, "")
		r := c.receive()
		if r == nil {
			return responses
		}
		responses = append(responses, r)
	}
	c.w.t.Fatal("the conversation does not come to rest")
	return nil
}

func (c *client) names(typeURL string) []string {
	var out []string
	for n := range c.state[typeURL] {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// checkEqual compares a client that follows everything with the log.
func (c *client) checkEqual() {
	c.w.t.Helper()
	for _, typeURL := range c.w.log.Types() {
		live := map[string]string{}
		for _, r := range c.w.log.Live(typeURL) {
			live[r.Name] = r.Version
		}
		for name, version := range live {
			if got := c.state[typeURL][name]; got == nil || got.Version != version {
				c.w.t.Errorf("%s: client has %v of %s, want version %s", typeURL, got.GetVersion(), name, version)
			}
		}
		for name := range c.state[typeURL] {
			if _, ok := live[name]; !ok {
				c.w.t.Errorf("%s: client kept %s, which is gone", typeURL, name)
			}
		}
	}
}

func resourceNames(r *discovery.DeltaDiscoveryResponse) []string {
	var out []string
	for _, res := range r.GetResources() {
		out = append(out, res.Name)
	}
	return out
}
