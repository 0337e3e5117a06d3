// Package resourcekind declares the kinds of resources that the control plane sends to proxies. A further kind needs a declaration here and
// something that compiles it; the log, discovery, acknowledgements and metrics read the declarations.
package resourcekind

import (
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcelog"
)

// The type URLs of the kinds.
const (
	Address       = "type.googleapis.com/istio.workload.Address"
	Authorization = "type.googleapis.com/istio.security.Authorization"
	// The kinds of proxies that read requests.
	RequestAuthorization  = "type.googleapis.com/lateen.l7.Authorization"
	RequestAuthentication = "type.googleapis.com/lateen.l7.Authentication"
	Gateway               = "type.googleapis.com/lateen.l7.Gateway"
	Binding               = "type.googleapis.com/lateen.l7.Binding"
)

// The orders of the kinds, with space between them.
const (
	orderPolicies        = 100
	orderRequestPolicies = 110
	orderGateways        = 120
	orderBindings        = 150
	orderAddresses       = 200
)

// Mesh are the kinds of the mesh. A node proxy skips a policy that it does not know. So it gets an Authorization before an Address that names
// it, and loses one only after the Addresses that named it have changed. A waypoint gets the policies of a service and its Gateway before the
// Binding that sends it the service's requests, and loses them only after that.
var Mesh = resourcelog.NewKinds(
	resourcelog.Kind{
		TypeURL: Authorization, Label: "wads", Order: orderPolicies, RemovedAfter: []string{Address}, Together: true,
		Annotate: func(r *resourcelog.Resource, message proto.Message) {
			if policy, ok := message.(*security.Authorization); ok {
				r.Broad = policy.GetScope() != security.Scope_WORKLOAD_SELECTOR
			}
		},
	},
	resourcelog.Kind{
		TypeURL: RequestAuthorization, Label: "l7_authorization", Order: orderRequestPolicies, RemovedAfter: []string{Binding}, Together: true,
		For: resourcelog.RoleWaypoint, Audience: isReader, Annotate: annotateParents,
	},
	resourcelog.Kind{
		TypeURL: RequestAuthentication, Label: "l7_authentication", Order: orderRequestPolicies, RemovedAfter: []string{Binding}, Together: true,
		For: resourcelog.RoleWaypoint, Audience: isReader, Annotate: annotateParents,
	},
	resourcelog.Kind{
		TypeURL: Gateway, Label: "l7_gateway", Order: orderGateways,
		For: resourcelog.RoleWaypoint, Audience: isReader, Annotate: annotateGateway,
	},
	resourcelog.Kind{
		TypeURL: Binding, Label: "l7_binding", Order: orderBindings, RemovedAfter: []string{Address},
		For: resourcelog.RoleWaypoint, Audience: isReader, Annotate: annotateParents,
	},
	resourcelog.Kind{
		TypeURL: Address, Label: "wds", Order: orderAddresses,
		Annotate: func(r *resourcelog.Resource, message proto.Message) {
			if address, ok := message.(*workload.Address); ok {
				r.Node = address.GetWorkload().GetNode()
			}
		},
	},
)
