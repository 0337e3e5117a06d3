package resourcelog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
)

// Kind declares one kind of wire resource. The log, discovery and the metrics know a kind by its declaration alone.
type Kind struct {
	// TypeURL is the full URL by which clients ask for the kind.
	TypeURL string
	// Label is the kind's value of the label "type" of metrics. Empty: the type URL.
	Label string
	// Order ranks kinds that one client follows. A client is sent a generation's resources only after it has acknowledged, through that
	// generation, every kind of a lower order that it follows. Kinds of one order do not wait for each other.
	Order int
	// RemovedAfter are the type URLs of the kinds whose resources may name resources of this one; they have a higher order. A removal is sent
	// only after the client has acknowledged these kinds through the removal's generation. A client that follows one of the kinds is
	// expected to ask for the other as well. Empty: removals are sent in the order of the log.
	RemovedAfter []string
	// For is the role of the proxies that the kind is for; empty: any. To others none of its resources exists, and they need not follow it.
	// A kind that is for one role declares its audience as well.
	For Role
	// Together says that resources that change in one generation are to come in one response, even beyond the usual bound of its bytes.
	Together bool
	// Audience says whether a caller may have a resource. To other callers the resource does not exist. The answer must depend on
	// nothing but the arguments. Nil: everybody may have every resource.
	Audience func(Caller, *Resource) bool
	// Annotate, if set, derives what the log keeps beside a resource's bytes from its message.
	Annotate func(*Resource, proto.Message)
}

// Role is what a proxy does for the mesh.
type Role string

// The roles.
const (
	RoleNode     Role = "node"     // it carries the connections of its node's pods
	RoleWaypoint Role = "waypoint" // it reads requests for the services of a Gateway
)

// Caller is the proven identity of a client.
type Caller struct {
	Node     string // the node that it runs on
	Workload string // "namespace/pod"
	Identity string // "namespace/serviceaccount"
	Role     Role
}

// Admits says whether a caller may have a resource.
func (k *Kind) Admits(c Caller, r *Resource) bool {
	return k.Serves(c) && (k.Audience == nil || k.Audience(c, r))
}

// Serves says whether a kind is for callers of this one's role.
func (k *Kind) Serves(c Caller) bool { return k.For == "" || k.For == c.Role }

// Compare orders kinds by their order, then by type URL.
func (k *Kind) Compare(o *Kind) int {
	return cmp.Or(cmp.Compare(k.Order, o.Order), strings.Compare(k.TypeURL, o.TypeURL))
}

// Kinds is a registry of wire kinds. It is immutable.
type Kinds struct {
	ordered []*Kind // by order, then by type URL
	byURL   map[string]*Kind
}

// NewKinds returns a registry of the declared kinds. It panics if a declaration contradicts another, since declarations are constants of
// the program.
func NewKinds(kinds ...Kind) *Kinds {
	all := &Kinds{byURL: map[string]*Kind{}}
	for _, k := range kinds {
		if k.TypeURL == "" || all.byURL[k.TypeURL] != nil {
			panic(fmt.Sprintf("resourcelog: kind %q is declared twice, or without a type URL", k.TypeURL))
		}
		if k.For != "" && k.Audience == nil {
			panic(fmt.Sprintf("resourcelog: kind %q is for one role and declares no audience", k.TypeURL))
		}
		k.Label = cmp.Or(k.Label, k.TypeURL)
		all.byURL[k.TypeURL] = &k
		all.ordered = append(all.ordered, &k)
	}
	for _, k := range all.ordered {
		for _, url := range k.RemovedAfter {
			if after := all.byURL[url]; after == nil || after.Order <= k.Order {
				panic(fmt.Sprintf("resourcelog: removals of %q wait for %q, which is not a kind of a higher order", k.TypeURL, url))
			}
		}
	}
	slices.SortFunc(all.ordered, (*Kind).Compare)
	return all
}

// All lists the kinds by their order. The caller must not change the list.
func (k *Kinds) All() []*Kind { return k.ordered }

// Of returns the kind of a type URL, or nil.
func (k *Kinds) Of(typeURL string) *Kind { return k.byURL[typeURL] }

// Label is the value of the metrics' label "type" for a type URL.
func (k *Kinds) Label(typeURL string) string {
	if kind := k.byURL[typeURL]; kind != nil {
		return kind.Label
	}
	return typeURL
}
