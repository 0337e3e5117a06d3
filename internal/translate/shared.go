package translate

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// CreatedExtension is the name under which a service that comes of a ServiceEntry says when that was created: a google.protobuf.Timestamp.
// Of several entries that name one address the oldest counts for clients whose namespace has none of its own, and proxies cannot tell
// their ages otherwise. A service without it comes of a Service, and counts before entries. Proxies that do not know it take no notice.
const CreatedExtension = "lateen.entry-created"

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
	Here       string   // the entry of the own namespace that counts before this one; empty if there is none
	Others     []string // those that count in their own namespaces: the first MostOthers of them
	Elsewhere  string   // the one that counts in namespaces that declare none; empty if all are kept to their namespaces
	Everywhere bool     // that is this one
}

// tell says which entry counts where.
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

// Of many others the first few are named and some more are counted. That all are not is a bound on what one more of them changes: with each
// that comes or goes, every one would be told something else.
const (
	mostNamed   = 5
	mostCounted = 20
	// MostOthers is of how many others one is told: those, and that there are more.
	MostOthers = mostNamed + mostCounted + 1
)

// listed names the first few of many.
func listed(names []string) string {
	switch more := len(names) - mostNamed; {
	case more > mostCounted:
		return fmt.Sprintf("%s and more than %d more", strings.Join(names[:mostNamed], ", "), mostCounted)
	case more > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
