package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/translate"
)

// reasonsLive is how long the objects that explain refusals are kept, so that a flood of refusals asks for them once. It is short because a
// refusal must not name an object that was deleted before the connection was opened.
const reasonsLive = 100 * time.Millisecond

// reasonsPatience bounds how long one reason waits for the engine. A reason without an answer stays general.
const reasonsPatience = 2 * time.Second

// reasons explains verdicts by the objects that people wrote. A node proxy knows a STRICT PeerAuthentication as a policy that denies
// plaintext, under a name that no object has; which object it is follows from the objects, as in the control plane.
type reasons struct {
	app *app
	ctx context.Context

	mu     sync.Mutex    // guards the fields below, also while the engine is asked: one request answers all who wait
	asked  time.Time     // when the objects were read; it is not later than the answer
	took   time.Duration // how long the answer took
	root   string        // the mesh's root namespace; empty until it is needed
	peers  []*securityv1.PeerAuthentication
	labels map[string]map[string]string // of pods, by namespace and name
}

// explained is a reason with the objects that it names.
type explained struct {
	printer.Reason
	objects []api.Key
}

func (r *reasons) of(c api.Connection) explained {
	switch verdict := c.Verdict(); {
	case verdict == api.DeniedByPeer:
		return explained{Reason: printer.Reason{"the server's node proxy denied it; its inbound line names the policy", "by the server's proxy"}}
	case verdict == api.Denied && c.Denial != nil:
		e := r.denial(c, *c.Denial)
		if c.State == "cut" {
			e.Reason = append(printer.Reason{"ended after a change: " + e.Text()}, e.Reason...)
		}
		return e
	case c.Error != "":
		return explained{Reason: printer.Reason{c.Error}}
	case c.WouldDeny != nil:
		return rehearsed(*c.WouldDeny)
	case c.AllowedBy != "":
		return explained{Reason: printer.Reason{"allowed by " + c.AllowedBy, c.AllowedBy}}
	}
	return explained{}
}

// denial explains a refusal. A proxy names the first policy that denies.
func (r *reasons) denial(c api.Connection, d api.Denial) explained {
	if len(d.By) == 1 {
		namespace, policy, _ := strings.Cut(d.By[0], "/")
		if own, is := translate.FromPeerAuthentication(policy); is {
			return r.strict(c, namespace, own)
		}
	}
	objects, all := policies(d.Unnamed, d.By, d.NoneMatched, d.NotKnown)
	switch {
	case len(d.NotKnown) > 0:
		return explained{printer.Reason{"the node proxy could not read AuthorizationPolicy " + all, "AuthorizationPolicy not read: " + all, all}, objects}
	case len(d.By) > 0:
		return explained{printer.Reason{"denied by AuthorizationPolicy " + all, "AuthorizationPolicy " + all, all}, objects}
	}
	return explained{printer.Reason{"no rule of these ALLOW policies matches: " + all, "no match in ALLOW " + all, "none of " + all}, objects}
}

// rehearsed explains a refusal by policies in dry run.
func rehearsed(d api.Denial) explained {
	objects, all := policies(d.Unnamed, d.By, d.NoneMatched)
	if len(d.By) > 0 {
		return explained{printer.Reason{"dry run: AuthorizationPolicy " + all + " would deny", "AuthorizationPolicy " + all, all}, objects}
	}
	return explained{printer.Reason{"dry run: no rule of these ALLOW policies matches: " + all, "no match in ALLOW " + all, "none of " + all}, objects}
}

// policies returns the AuthorizationPolicies of these names as objects, and in one text that counts unnamed ones as well.
func policies(unnamed int, names ...[]string) (objects []api.Key, all string) {
	flat := slices.Concat(names...)
	for _, name := range flat {
		namespace, policy, _ := strings.Cut(name, "/")
		objects = append(objects, api.Key{Kind: "AuthorizationPolicy", Namespace: namespace, Name: policy})
	}
	all = strings.Join(flat, ", ")
	if unnamed > 0 {
		all += fmt.Sprintf(" and %d more", unnamed)
	}
	return objects, all
}

// strict explains that plaintext was refused. namespace and own are those of the policy: own is empty for the one that stands for all
// PeerAuthentications, which is in the root namespace.
func (r *reasons) strict(c api.Connection, namespace, own string) explained {
	ctx, cancel := context.WithTimeout(r.ctx, reasonsPatience)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	root := namespace
	if own != "" { // the policy is in its PeerAuthentication's namespace
		root = r.root
		if root == "" {
			root = rootNamespace(ctx, r.app.client())
			if ctx.Err() == nil { // without an answer it is a guess
				r.root = root
			}
		}
	}
	number, err := strconv.ParseUint(c.Destination.Address[strings.LastIndexByte(c.Destination.Address, ':')+1:], 10, 16)
	if err == nil { // without a port nothing can be found
		r.refresh(ctx)
		labels := r.labelsOf(ctx, c.Destination.Namespace, c.Destination.Workload)
		if found, is := translate.FindStrictness(r.peers, root, c.Destination.Namespace, labels, uint32(number)); is {
			where := ""
			if found.OnPort {
				where = fmt.Sprintf(" on port %d", number)
			}
			return plaintextRefused(found.PeerAuthentication.Namespace, found.PeerAuthentication.Name, "STRICT"+where, "is")
		}
	}
	if own != "" {
		return plaintextRefused(namespace, own, "STRICT", "inherits")
	}
	return explained{Reason: printer.Reason{"plaintext refused: a PeerAuthentication is STRICT", "plaintext refused"},
		objects: []api.Key{{Kind: "PeerAuthentication"}}}
}

func plaintextRefused(namespace, name, strict, verb string) explained {
	object := namespace + "/" + name
	return explained{
		printer.Reason{
			fmt.Sprintf("plaintext refused: PeerAuthentication %s %s %s", object, verb, strict),
			fmt.Sprintf("PeerAuthentication %s %s", object, strict), object + " STRICT", object,
		},
		[]api.Key{{Kind: "PeerAuthentication", Namespace: namespace, Name: name}},
	}
}

// refresh reads the PeerAuthentications again if they are older than reasonsLive, or than twice the time that a slow engine took to list them.
// Without an answer there are none, and reasons stay general.
func (r *reasons) refresh(ctx context.Context) {
	now := r.app.Now()
	if !r.asked.IsZero() && now.Sub(r.asked) < max(reasonsLive, 2*r.took) {
		return
	}
	defer func() { r.took = r.app.Now().Sub(now) }()
	r.asked, r.peers, r.labels = now, nil, map[string]map[string]string{}
	list, err := r.app.client().Get(ctx, api.GetRequest{Kind: "PeerAuthentication", AllNamespaces: true})
	if err != nil {
		return
	}
	for _, o := range list.Items {
		pa := &securityv1.PeerAuthentication{}
		if err := json.Unmarshal(o.Raw, pa); err == nil {
			r.peers = append(r.peers, pa)
		}
	}
}

func (r *reasons) labelsOf(ctx context.Context, namespace, pod string) map[string]string {
	key := namespace + "/" + pod
	if labels, known := r.labels[key]; known {
		return labels
	}
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	list, err := r.app.client().Get(ctx, api.GetRequest{Kind: "Pod", Namespace: namespace, Name: pod})
	if err == nil && len(list.Items) == 1 {
		if json.Unmarshal(list.Items[0].Raw, &object) != nil {
			object.Metadata.Labels = nil
		}
	}
	r.labels[key] = object.Metadata.Labels
	return object.Metadata.Labels
}
