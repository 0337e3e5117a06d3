// Package compile owns the upkeep of the log: it follows the model's changes, finds what they touch, and has just that translated again.
// It does not know how objects are translated or how the log is read.
package compile

import (
	"log/slog"
	"sync"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// Compiler turns batches of changes into generations of the log.
type Compiler struct {
	store  *model.Store
	log    *resourcelog.Log
	logger *slog.Logger
	took   func(time.Duration)

	mu          sync.Mutex // one batch at a time
	started     bool       // the first batch, which holds every object, was taken
	compiled    int        // objects, counted each time that they are compiled
	pruned      int        // names of policies that were left when those of deleted objects were last dropped
	assignments *Assignments

	out       *publisher
	index     *sourceIndex
	hosts     *hosts
	places    *places
	arbiter   *arbiter
	allocator *allocator
	policies  *policyCompiler
	peers     *peerCompiler
	services  *serviceCompiler
	workloads *workloadCompiler
	requests  *requestCompiler
	ties      *ties
	steps     []step
}

// New returns a compiler for an empty store and log. took, if not nil, hears how long each batch took.
func New(mesh translate.Mesh, store *model.Store, l *resourcelog.Log, assignments *Assignments, logger *slog.Logger, took func(time.Duration)) *Compiler {
	if took == nil {
		took = func(time.Duration) {}
	}
	f := &facts{mesh: mesh, store: store}
	c := &Compiler{store: store, log: l, logger: logger, took: took, assignments: assignments}
	c.out = &publisher{log: l, logger: logger, store: store}
	c.index = newSourceIndex(mesh, store)
	c.hosts = newHosts()
	c.places = newPlaces(f, c.hosts, assignments)
	c.arbiter = newArbiter(f, c.places, c.hosts, c.index.names)
	c.allocator = newAllocator(f, assignments, c.hosts, c.arbiter.asks, c.places)
	c.policies = newPolicyCompiler(f, c.out, l, assignments)
	c.peers = newPeerCompiler(f, c.out, c.policies)
	asked := newGateways(f, c.out, c.index, c.places.occupant)
	c.ties = newTies(mesh, assignments, asked.operational)
	c.services = &serviceCompiler{facts: f, out: c.out, gateways: asked, places: c.places, arbiter: c.arbiter, allocator: c.allocator, hosts: c.hosts,
		names: c.index.names, assignments: assignments, index: c.index, bindings: newBindings(c.out), ties: c.ties, bound: map[model.Key]translate.Bound{}, departed: newDeparted()}
	c.workloads = newWorkloadCompiler(f, c.out, c.index, asked, c.places, c.hosts, c.policies, c.peers, c.ties)
	c.ties.refusal = (&admission{facts: f, index: c.index, policies: c.policies, log: l, decoded: map[model.Key]decodedPolicy{}}).refusal
	if mesh.AutoAllowWaypoints {
		c.ties.turned = func(b *batch, key model.Key) {
			e, ok := store.Entry(key)
			if !ok {
				return
			}
			for _, of := range []selector{serviceSelector, entrySelector} {
				if namespace, labels, ok := of(c.index, key, e.Object); ok {
					c.index.selection.Chosen(namespace, labels, b.workload)
				}
			}
			for of := range c.index.slices[key] {
				if slice, ok := store.EndpointSlice(of); ok {
					for pod := range translate.SlicePods(slice) {
						b.workload(pod)
					}
				}
			}
		}
	}
	c.requests = newRequestCompiler(f, c.out, c.index, asked, c.services)
	spoken := &speakers{facts: f, hosts: c.hosts, names: c.index.names, selection: c.index.selection, asks: c.arbiter.asks, assignments: assignments,
		allocator: c.allocator, places: c.places}
	c.steps = []step{
		each(gatewayOutput, asked.settle),
		c.arbiter.settle,
		spoken.settle,
		each(policyOutput, c.policies.compile),
		together(c.peers.compile, peerOutput),
		each(serviceOutput, c.services.compile),
		c.places.settleVirtual,
		each(workloadOutput, c.workloads.compile),
		each(nodeOutput, c.workloads.tellNode),
		together(c.peers.tell, peerOutput, verdictOutput),
		each(meshOutput, c.requests.settle),
		each(requestGatewayOutput, c.requests.compileGateway),
		each(requestPolicyOutput, c.requests.compilePolicy),
	}
	return c
}

// Apply takes changes into the store and brings the log up to date with it, as one generation.
func (c *Compiler) Apply(changes []model.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	generation, changed := c.store.Apply(changes)
	c.arbiter.forget()
	b := newBatch(generation)
	for _, ch := range changed {
		c.take(b, ch)
	}
	for _, run := range c.steps {
		run(b)
	}
	c.keepAssignments(b)
	c.ties.began = true
	c.ties.reconsider(b, c.index.mesh.RootNamespace)
	appended := c.log.Append(generation, b.changes)
	compiled := len(b.stale[serviceOutput]) + len(b.stale[workloadOutput]) + len(b.stale[policyOutput]) + len(b.stale[requestPolicyOutput])
	c.compiled += compiled
	took := time.Since(start)
	c.took(took)
	c.logger.Debug("compile: generation complete", "generation", generation, "objects", len(changed), "compiled", compiled, "resources", appended, "took", took)
}

// keepAssignments writes down what was chosen before proxies are told. If that fails they are told all the same: what is chosen holds until
// the next start.
func (c *Compiler) keepAssignments(b *batch) {
	// A policy that is deleted keeps its name for a while: proxies may learn of its successor together with its end.
	const slack = 4096
	if !c.started || len(c.assignments.Policies) > 2*c.pruned+slack {
		c.started = true
		policies := map[string]bool{}
		for _, e := range c.store.Entries() {
			policies[policyObject(e.Object.Key)] = true
		}
		c.assignments.keep(func(service string) bool { _, ok := c.hosts.owner(service); return ok }, func(p string) bool { return policies[p] }, func(name string) bool { return c.ties.of[name] != nil })
		c.pruned = len(c.assignments.Policies)
	}
	if err := c.assignments.save(); err != nil {
		c.logger.Error("compile: assignments were not kept; after a restart some virtual addresses may differ", "error", err)
	}
}

func valueOf[T any](o *model.Object) (v T, ok bool) {
	if o == nil {
		return v, false
	}
	v, ok = o.Value.(T)
	return v, ok
}
