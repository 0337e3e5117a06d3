package compile

import (
	"cmp"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// output is a kind of result that is compiled per key.
type output int

// The outputs, in the order in which a batch brings them up to date.
const (
	gatewayOutput        output = iota // a Gateway: a waypoint, or the entrance to a network
	policyOutput                       // the policy of an AuthorizationPolicy
	peerOutput                         // the policies of all PeerAuthentications; they are compiled together
	serviceOutput                      // the services of a Service or a ServiceEntry
	workloadOutput                     // the workloads of a Pod, a WorkloadEntry, a ServiceEntry or an EndpointSlice
	nodeOutput                         // the conditions of a Node
	verdictOutput                      // the conditions of a PeerAuthentication
	meshOutput                         // the mesh's settings
	requestGatewayOutput               // a Gateway as its own proxies know it
	requestPolicyOutput                // a policy with targetRefs
	outputs
)

// source declares one kind of source objects: the indices that its objects feed, and the outputs that depend on its objects.
type source struct {
	group, kind string
	// feeds update indices. All of them run before the first edge.
	feeds []feed
	edges []edge
	// accepted says that no translation judges the objects: each is accepted as it is.
	accepted bool
	// reads, if set, says which objects of the kind are read. The others are told that they have no effect.
	reads func(x *sourceIndex, key model.Key) bool
	// partial says that some objects of the kind have no effect. Such an object is told so, and passes neither feeds nor edges.
	partial bool
}

// feed updates one index with the change of an object.
type feed func(x *sourceIndex, ch model.Changed)

// edge says which keys of an output depend on a changed object.
type edge struct {
	to output
	// keys marks the keys that depend on the object as it was or as it is.
	keys func(x *sourceIndex, ch model.Changed, stale marker)
	// when, if set, says whether a change bears on the output at all.
	when func(ch model.Changed) bool
}

// marker marks keys of one output as stale.
type marker struct {
	b  *batch
	to output
}

func (m marker) mark(key model.Key) { m.b.stale[m.to][key] = true }

// batch is the part of the graph that one set of changes makes stale.
type batch struct {
	generation uint64
	// settling says that nothing has changed but how objects stand to their waypoints.
	settling bool
	stale    [outputs]map[model.Key]bool
	changes  []resourcelog.Change
}

func newBatch(generation uint64) *batch {
	b := &batch{generation: generation}
	for i := range b.stale {
		b.stale[i] = map[model.Key]bool{}
	}
	return b
}

// mark has an output compiled again for a key.
func (b *batch) mark(to output, key model.Key) { b.stale[to][key] = true }

func (b *batch) workload(key model.Key) { b.mark(workloadOutput, key) }

// remove takes a resource out of the log.
func (b *batch) remove(typeURL, name string) {
	b.changes = append(b.changes, resourcelog.Change{Type: typeURL, Name: name})
}

// kindKey names a kind of source objects.
type kindKey struct{ group, kind string }

// sourceOf finds the declaration of a kind.
var sourceOf = func() map[kindKey]*source {
	all := map[kindKey]*source{}
	for i := range sources {
		all[kindKey{sources[i].group, sources[i].kind}] = &sources[i]
	}
	return all
}()

// take updates the indices with one changed object, and marks the outputs that depend on it.
func (c *Compiler) take(b *batch, ch model.Changed) {
	s := sourceOf[kindKey{ch.Key.Group, ch.Key.Kind}]
	if s != nil && s.reads != nil && !s.reads(c.index, ch.Key) {
		if ch.New != nil {
			c.out.conditions(b, ch.Key, []model.Condition{translate.NotImplemented(cmp.Or(ch.New.Reason, "nothing reads it where it is; of its kind "+c.index.mesh.ConfigKey().String()+" is read alone"))})
		}
		return
	}
	if ch.New != nil && (s == nil || s.partial && ch.New.Support != model.Implemented) {
		switch {
		case s != nil || ch.New.Support == model.Ineffective:
			c.out.conditions(b, ch.Key, []model.Condition{translate.NotImplemented(ch.New.Reason)})
		case ch.New.Support == model.Implemented:
			c.out.accept(ch.Key, b)
		}
		return
	}
	if s == nil {
		return
	}
	for _, update := range s.feeds {
		update(c.index, ch)
	}
	for _, e := range s.edges {
		if e.when == nil || e.when(ch) {
			e.keys(c.index, ch, marker{b, e.to})
		}
	}
	if s.accepted {
		c.out.accept(ch.Key, b)
	}
}

// step brings a part of what is stale up to date. It may mark outputs that a later step of the batch compiles, and no others.
type step func(b *batch)

// each compiles every stale key of an output.
func each(of output, compile func(b *batch, key model.Key)) step {
	return func(b *batch) {
		for key := range b.stale[of] {
			compile(b, key)
		}
	}
}

// together compiles all keys of outputs at once if any of them is stale.
func together(compile step, of ...output) step {
	return func(b *batch) {
		for _, o := range of {
			if len(b.stale[o]) > 0 {
				compile(b)
				return
			}
		}
	}
}
