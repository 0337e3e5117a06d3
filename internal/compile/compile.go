// Package compile owns the upkeep of the log: it follows the model's changes, finds what they touch, and has just that translated again.
// It does not know how objects are translated or how the log is read.
package compile

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// Compiler turns batches of changes into generations of the log.
type Compiler struct {
	mesh   translate.Mesh
	store  *model.Store
	log    *resourcelog.Log
	logger *slog.Logger
	took   func(time.Duration)

	mu          sync.Mutex // one batch at a time
	started     bool       // the first batch, which is all there is, was taken
	compiled    int        // how many objects, however often each
	looked      int        // how many claims and places were looked at to settle whose an address, a range or a host is
	pruned      int        // policies' names that were left when those of objects that are gone were last forgotten
	assignments *Assignments
	indices
}

// indices are what the compiler keeps beside the store, so that a change costs no more than what depends on it. The feeds of sources keep
// some of them, and the steps of a batch the others.
type indices struct {
	// Kept by feeds:
	selection *model.Selection
	names     names
	slices    map[model.Key]map[model.Key]bool  // Service → EndpointSlices that are not made of its pods
	slicesOf  map[model.Key]map[model.Key][]int // Pod → those of them that name it, by their endpoints
	// Kept by steps:
	peers       peerScopes
	ownership   ownership
	published   map[model.Key]string // AuthorizationPolicies that have a resource, and the name by which workloads name it
	hosts       hosts
	claims      addresses // where nodes and pods are, and the cluster IPs of Services
	asks        addresses // what ServiceEntries ask for
	ranges      ranges
	conflicts   conflicts
	inherited   inherited
	occupants   occupants
	misplaced   misplaced
	endpointsAt addresses // where WorkloadEntries and ServiceEntries say that their endpoints are
	gateways    gateways
	endpoints   map[model.Key]map[string]bool // ServiceEntry or EndpointSlice → names of the workloads that its endpoints are
}

func newIndices() indices {
	return indices{
		selection: model.NewSelection(), names: newNames(), slices: map[model.Key]map[model.Key]bool{}, slicesOf: map[model.Key]map[model.Key][]int{},
		peers: newPeerScopes(), ownership: newOwnership(), published: map[model.Key]string{}, hosts: newHosts(), claims: newAddresses(),
		asks: newAddresses(), ranges: newRanges(), conflicts: newConflicts(), inherited: newInherited(), occupants: newOccupants(),
		misplaced: misplaced{}, endpointsAt: newAddresses(), gateways: newGateways(), endpoints: map[model.Key]map[string]bool{},
	}
}

// New returns a compiler for an empty store and log. took, if not nil, hears how long each batch took.
func New(mesh translate.Mesh, store *model.Store, l *resourcelog.Log, assignments *Assignments, logger *slog.Logger, took func(time.Duration)) *Compiler {
	if took == nil {
		took = func(time.Duration) {}
	}
	return &Compiler{mesh: mesh, store: store, log: l, logger: logger, assignments: assignments, indices: newIndices(), took: took}
}

// Apply takes changes into the store and brings the log up to date with it, as one generation.
func (c *Compiler) Apply(changes []model.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := time.Now()
	generation, changed := c.store.Apply(changes)
	c.conflicts.forget()
	b := newBatch(generation)
	for _, ch := range changed {
		c.take(b, ch)
	}
	for _, run := range steps {
		run(c, b)
	}
	c.keepAssignments(b)
	appended := c.log.Append(generation, b.changes)
	compiled := len(b.stale[serviceOutput]) + len(b.stale[workloadOutput]) + len(b.stale[policyOutput])
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
		c.assignments.keep(func(service string) bool { _, ok := c.hosts.owner(service); return ok }, func(p string) bool { return policies[p] })
		c.pruned = len(c.assignments.Policies)
	}
	if err := c.assignments.save(); err != nil {
		c.logger.Error("compile: assignments were not kept; after a restart some virtual addresses may differ", "error", err)
	}
}

// emit puts a resource that was made of the source objects into the log.
func (c *Compiler) emit(b *batch, typeURL, name string, aliases, parents []string, message proto.Message, sources ...model.Key) {
	r, err := c.log.Kinds().Of(typeURL).Encode(name, aliases, parents, message)
	if err != nil {
		// Only text that is not UTF-8 gets here, and no decoder lets that in. The last good version stays.
		c.logger.Error("compile: a resource was not encoded", "type", typeURL, "name", name, "error", err)
		return
	}
	for _, key := range sources {
		r.Sources = append(r.Sources, resourcelog.Source{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	}
	b.changes = append(b.changes, resourcelog.Change{Type: typeURL, Name: name, Resource: r})
}

func (c *Compiler) accept(key model.Key, b *batch) {
	c.conditions(b, key, []model.Condition{translate.Accepted()})
}

// conditions tells the author of an object what became of it.
func (c *Compiler) conditions(b *batch, key model.Key, conditions []model.Condition) {
	c.report(b, key, model.Report{Conditions: conditions})
}

// report does the same for an object with parents or listeners, of which each has conditions of its own.
func (c *Compiler) report(b *batch, key model.Key, report model.Report) {
	if e, ok := c.store.Entry(key); ok && e.Object.Refused != "" {
		report.Conditions = []model.Condition{translate.Refused(e.Object.Refused)}
	}
	stamp := func(conditions []model.Condition) {
		for i := range conditions {
			conditions[i].Generation = b.generation
		}
	}
	stamp(report.Conditions)
	for _, p := range report.Parents() {
		stamp(p.Conditions)
	}
	for _, l := range report.Listeners() {
		stamp(l.Conditions)
	}
	c.store.SetReport(key, report)
}

func valueOf[T any](o *model.Object) (v T, ok bool) {
	if o == nil {
		return v, false
	}
	v, ok = o.Value.(T)
	return v, ok
}
