// Package compile owns the upkeep of the log: it follows the model's changes, finds what they touch, and has just that translated again.
// It does not know how objects are translated or how the log is read.
package compile

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// Compiler turns batches of changes into generations of the log.
type Compiler struct {
	mesh   translate.Mesh
	store  *model.Store
	log    *log.Log
	logger *slog.Logger

	mu        sync.Mutex // one batch at a time
	selection *model.Selection
	peers     peerScopes
	published map[model.Key]bool // AuthorizationPolicies that have a resource, and may be named by workloads
	took      func(time.Duration)
}

// New returns a compiler for an empty store and log. took, if not nil, hears how long each batch took.
func New(mesh translate.Mesh, store *model.Store, l *log.Log, logger *slog.Logger, took func(time.Duration)) *Compiler {
	if took == nil {
		took = func(time.Duration) {}
	}
	return &Compiler{mesh: mesh, store: store, log: l, logger: logger, selection: model.NewSelection(),
		peers: newPeerScopes(), published: map[model.Key]bool{}, took: took}
}

// batch is what one set of changes touches.
type batch struct {
	generation uint64
	pods       map[model.Key]bool
	services   map[model.Key]bool
	policies   map[model.Key]bool
	peers      bool
	changes    []log.Change
}

func (b *batch) pod(key model.Key) { b.pods[key] = true }

// Apply takes changes into the store and brings the log up to date with it, as one generation.
func (c *Compiler) Apply(changes []model.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	generation, changed := c.store.Apply(changes)
	b := &batch{generation: generation, pods: map[model.Key]bool{}, services: map[model.Key]bool{}, policies: map[model.Key]bool{}}
	for _, ch := range changed {
		c.touch(b, ch)
	}
	for key := range b.policies {
		c.compilePolicy(b, key) // before the pods, which name them
	}
	if b.peers {
		c.compilePeers(b)
	}
	for key := range b.services {
		c.compileService(b, key)
	}
	for key := range b.pods {
		c.compilePod(b, key)
	}
	appended := c.log.Append(generation, b.changes)
	took := time.Since(start)
	c.took(took)
	c.logger.Debug("compile: generation complete", "generation", generation, "objects", len(changed), "resources", appended, "took", took)
}

// touch finds what one changed object bears on, and keeps the selection in step.
func (c *Compiler) touch(b *batch, ch model.Changed) {
	key := ch.Key
	switch {
	case key.Group == "" && key.Kind == "Pod":
		if pod, ok := valueOf[*corev1.Pod](ch.New); ok {
			c.selection.PutPod(key.Namespace, key.Name, pod.Labels)
		} else {
			c.selection.DeletePod(key.Namespace, key.Name)
		}
		b.pod(key)
	case key.Group == "" && key.Kind == "Service":
		c.touchService(b, ch)
	case key.Group == "" && key.Kind == "Node":
		for _, pod := range c.store.PodsOnNode(key.Name) {
			b.pod(model.PodKey(pod.Namespace, pod.Name))
		}
		c.accept(key, b)
	case key.Group == "" && key.Kind == "Namespace":
		c.touchNamespace(b, ch)
	case key.Group == model.SecurityGroup && key.Kind == "AuthorizationPolicy":
		c.touchPolicy(b, ch)
	case key.Group == model.SecurityGroup && key.Kind == "PeerAuthentication":
		c.touchPeerAuthentication(b, ch)
	case ch.New != nil && ch.New.Support == model.Ineffective:
		c.conditions(b, key, []model.Condition{translate.NotImplemented(key.Kind, ch.New.Reason)})
	case ch.New != nil && ch.New.Support == model.Implemented:
		c.accept(key, b)
	}
}

func (c *Compiler) touchService(b *batch, ch model.Changed) {
	key := ch.Key
	if old, ok := valueOf[*corev1.Service](ch.Old); ok && len(old.Spec.Selector) > 0 {
		c.selection.Pods(key.Namespace, old.Spec.Selector, b.pod)
		c.selection.DeleteSelector(key, key.Namespace)
	}
	// A service without a selector chooses no pods.
	if svc, ok := valueOf[*corev1.Service](ch.New); ok && len(svc.Spec.Selector) > 0 && svc.Spec.Type != corev1.ServiceTypeExternalName {
		c.selection.PutSelector(key, key.Namespace, svc.Spec.Selector)
		c.selection.Pods(key.Namespace, svc.Spec.Selector, b.pod)
	}
	b.services[key] = true
}

// touchNamespace looks at annotations only: enrolment by label reaches the mesh through what the agents do about it.
func (c *Compiler) touchNamespace(b *batch, ch model.Changed) {
	annotations := func(o *model.Object) map[string]string {
		if ns, ok := valueOf[*corev1.Namespace](o); ok {
			return ns.Annotations
		}
		return nil
	}
	if !maps.Equal(annotations(ch.Old), annotations(ch.New)) {
		for key := range c.store.Services() {
			if key.Namespace == ch.Key.Name {
				b.services[key] = true
			}
		}
	}
	c.accept(ch.Key, b)
}

func (c *Compiler) touchPolicy(b *batch, ch model.Changed) {
	key := ch.Key
	// A policy of the root namespace chooses pods of the whole mesh.
	where := key.Namespace
	if where == c.mesh.RootNamespace {
		where = ""
	}
	if old, ok := valueOf[*securityv1.AuthorizationPolicy](ch.Old); ok && translate.AttachedByName(old) {
		c.selection.Pods(where, old.Spec.Selector.GetMatchLabels(), b.pod)
		c.selection.DeleteSelector(key, where)
	}
	if policy, ok := valueOf[*securityv1.AuthorizationPolicy](ch.New); ok && translate.AttachedByName(policy) {
		c.selection.PutSelector(key, where, policy.Spec.Selector.GetMatchLabels())
		c.selection.Pods(where, policy.Spec.Selector.GetMatchLabels(), b.pod)
	}
	b.policies[key] = true
}

func (c *Compiler) compilePolicy(b *batch, key model.Key) {
	policy, ok := c.store.AuthorizationPolicy(key)
	name := key.Namespace + "/" + key.Name
	if !ok {
		delete(c.published, key)
		b.changes = append(b.changes, log.Change{Type: log.AuthorizationType, Name: name})
		return
	}
	authorization, conditions := translate.Authorization(c.mesh, policy)
	c.conditions(b, key, conditions)
	if authorization == nil {
		delete(c.published, key)
		b.changes = append(b.changes, log.Change{Type: log.AuthorizationType, Name: name})
		return
	}
	c.published[key] = true
	c.emit(b, log.AuthorizationType, name, nil, nil, authorization)
}

func (c *Compiler) compileService(b *batch, key model.Key) {
	name := c.mesh.ServiceResource(key.Namespace, key.Name)
	svc, ok := c.store.Service(key)
	if !ok {
		b.changes = append(b.changes, log.Change{Type: log.AddressType, Name: name})
		return
	}
	ns, _ := c.store.Namespace(key.Namespace)
	service, conditions := translate.Service(c.mesh, svc, ns)
	c.conditions(b, key, conditions)
	if service == nil {
		b.changes = append(b.changes, log.Change{Type: log.AddressType, Name: name})
		return
	}
	c.emit(b, log.AddressType, name, translate.ServiceAliases(service), nil, &workload.Address{Type: &workload.Address_Service{Service: service}})
}

func (c *Compiler) compilePod(b *batch, key model.Key) {
	name := c.mesh.PodResource(key.Namespace, key.Name)
	pod, ok := c.store.Pod(key)
	if !ok {
		b.changes = append(b.changes, log.Change{Type: log.AddressType, Name: name})
		return
	}
	in := translate.WorkloadInput{Pod: pod}
	in.Node, _ = c.store.Node(pod.Spec.NodeName)
	var selecting []*securityv1.PeerAuthentication
	for _, owner := range c.selection.ChosenBy(key.Namespace, key.Name) {
		switch owner.Kind {
		case "Service":
			if svc, ok := c.store.Service(owner); ok {
				in.Services = append(in.Services, svc)
			}
		case "AuthorizationPolicy":
			if c.published[owner] {
				in.Policies = append(in.Policies, owner.Namespace+"/"+owner.Name)
			}
		case "PeerAuthentication":
			if pa, ok := c.store.PeerAuthentication(owner); ok {
				selecting = append(selecting, pa)
			}
		}
	}
	slices.Sort(in.Policies)
	in.Policies = append(in.Policies, translate.PeerAuthenticationPolicies(c.mesh, translate.Oldest(selecting), c.peers.inherited(key.Namespace))...)
	w, conditions := translate.Workload(c.mesh, in)
	c.conditions(b, key, conditions)
	if w == nil {
		b.changes = append(b.changes, log.Change{Type: log.AddressType, Name: name})
		return
	}
	c.emit(b, log.AddressType, name, translate.WorkloadAliases(w), slices.Sorted(maps.Keys(w.Services)), &workload.Address{Type: &workload.Address_Workload{Workload: w}})
}

func (c *Compiler) emit(b *batch, typeURL, name string, aliases, parents []string, message proto.Message) {
	r, err := log.Encode(typeURL, name, aliases, parents, message)
	if err != nil {
		// Only text that is not UTF-8 gets here, and no decoder lets that in. The last good version stays.
		c.logger.Error("compile: a resource was not encoded", "type", typeURL, "name", name, "error", err)
		return
	}
	if policy, ok := message.(*security.Authorization); ok {
		r.Broad = policy.Scope != security.Scope_WORKLOAD_SELECTOR
	}
	b.changes = append(b.changes, log.Change{Type: typeURL, Name: name, Resource: r})
}

func (c *Compiler) accept(key model.Key, b *batch) {
	c.conditions(b, key, []model.Condition{translate.Accepted()})
}

func (c *Compiler) conditions(b *batch, key model.Key, conditions []model.Condition) {
	for i := range conditions {
		conditions[i].Generation = b.generation
	}
	c.store.SetConditions(key, conditions)
}

func valueOf[T any](o *model.Object) (v T, ok bool) {
	if o == nil {
		return v, false
	}
	v, ok = o.Value.(T)
	return v, ok
}
