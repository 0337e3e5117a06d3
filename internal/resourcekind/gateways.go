package resourcekind

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/resourcelog"
)

// A proxy of a Gateway asks for each kind by one name, that of its Gateway, and has a resource only if its own identity is that of one of the
// Gateways that the resource is for.

// isReader admits the callers whose identity a resource names.
func isReader(c resourcelog.Caller, r *resourcelog.Resource) bool {
	return slices.Contains(r.Readers, c.Identity)
}

// annotateParents has a resource found by the names of its Gateways. The names are no aliases on the wire: a client relies on its own
// Gateway's, which it has asked for.
func annotateParents(r *resourcelog.Resource, message proto.Message) {
	for _, p := range parents(message) {
		if name := p.GetGateway(); name != r.Name && !slices.Contains(r.Aliases, name) {
			r.Aliases = append(r.Aliases, name)
		}
		addReader(r, p.GetIdentity())
	}
}

func annotateGateway(r *resourcelog.Resource, message proto.Message) {
	if gateway, ok := message.(*l7.Gateway); ok {
		addReader(r, gateway.GetIdentity())
	}
}

// addReader leaves out the empty identity, which is that of a caller without one.
func addReader(r *resourcelog.Resource, identity string) {
	if identity != "" && !slices.Contains(r.Readers, identity) {
		r.Readers = append(r.Readers, identity)
	}
}

// parents are the Gateways that a resource is for.
func parents(message proto.Message) []*l7.Parent {
	if m, ok := message.(interface{ GetParents() []*l7.Parent }); ok {
		return m.GetParents()
	}
	return nil
}
