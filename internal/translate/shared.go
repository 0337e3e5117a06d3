package translate

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// CreatedExtension is the name of the extension with the time at which a service's ServiceEntry was created (google.protobuf.Timestamp).
// Clients whose namespace has no entry for an address use the oldest one, and proxies have no other way to tell the ages. A service
// without the extension comes from a Service and has precedence over entries. A proxy that does not know the extension ignores it.
const CreatedExtension = "lateen.entry-created"

// RoundRobinExtension is the name of the extension of a service whose ServiceEntry has resolution DNS_ROUND_ROBIN (google.protobuf.Empty).
// A waypoint then has the first address of the hostname take all new connections. Without the extension it uses all addresses at once.
const RoundRobinExtension = "lateen.dns-round-robin"

// entryExtensions are what proxies are told of a ServiceEntry beside its service.
func entryExtensions(se *networkingv1.ServiceEntry) ([]*workload.Extension, error) {
	extensions, err := declaredAt(se)
	if err != nil || se.Spec.Resolution != networkingapi.ServiceEntry_DNS_ROUND_ROBIN {
		return extensions, err
	}
	config, err := anypb.New(&emptypb.Empty{})
	if err != nil {
		return nil, fmt.Errorf("its resolution cannot be sent: %w", err)
	}
	return append(extensions, &workload.Extension{Name: RoundRobinExtension, Config: config}), nil
}

// declaredAt encodes the creation time of a ServiceEntry as CreatedExtension.
func declaredAt(se *networkingv1.ServiceEntry) ([]*workload.Extension, error) {
	created := &timestamppb.Timestamp{}
	if t := se.CreationTimestamp; !t.IsZero() {
		created = timestamppb.New(t.Time)
	}
	config, err := anypb.New(created)
	if err != nil {
		return nil, fmt.Errorf("its time of creation cannot be sent: %w", err)
	}
	return []*workload.Extension{{Name: CreatedExtension, Config: config}}, nil
}

// Shared is a host or an address that several ServiceEntries declare.
type Shared struct {
	What       string   // "address 192.0.2.1", "host api.example.com"
	Here       string   // the entry of the same namespace that has precedence over this one; empty if there is none
	Others     []string // the entries in force in their own namespaces; the first MostOthers of them
	Elsewhere  string   // the entry in force in namespaces that declare none; empty if all are kept to their namespaces
	Everywhere bool     // this entry is the one in force in namespaces that declare none
}

// tell writes a note that says in which namespaces which entry is in force.
func (s Shared) tell(namespace string, v *verdict) {
	here := "this entry"
	reason := ""
	if s.Here != "" {
		here, reason = s.Here, "Conflicted"
	}
	said := fmt.Sprintf("%s is declared more than once: in namespace %s %s counts", s.What, namespace, here)
	if len(s.Others) > 0 {
		said += ", in their own namespaces " + listed(s.Others)
	}
	switch {
	case s.Everywhere:
		said += ", in all others this entry, the oldest that they see"
		reason = ""
	case s.Elsewhere != "":
		said += fmt.Sprintf(", in all others %s, which is older or has more right", s.Elsewhere)
		reason = "Conflicted"
	}
	v.note(reason, said)
}

// A note names the first few of the other entries and counts some more. The count is bounded: otherwise each entry that comes or goes
// would change the notes of all the others.
const (
	mostNamed   = 5
	mostCounted = 20
	// MostOthers is the number of other entries that tell needs: the named ones, the counted ones, and one that shows that there are more.
	MostOthers = mostNamed + mostCounted + 1
)

// listed joins the first mostNamed names and the number of the others, up to mostCounted.
func listed(names []string) string {
	switch more := len(names) - mostNamed; {
	case more > mostCounted:
		return fmt.Sprintf("%s and more than %d more", strings.Join(names[:mostNamed], ", "), mostCounted)
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
