// Package meaning owns the comparison of what a cluster's objects mean to two meshes: to the Istio in ambient mode that runs, and to this
// mesh in its place. It reads no cluster, file or clock: typed objects come in and differences go out, in a fixed order.
package meaning

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
)

// Severity says what a difference does to users of the mesh.
type Severity string

// The severities, the gravest first.
const (
	// AccessOpens: connections that are refused today are allowed.
	AccessOpens Severity = "accessOpens"
	// AccessCloses: connections that are allowed today are refused or fail.
	AccessCloses Severity = "accessCloses"
	// RouteChanges: connections go to another place or by another way.
	RouteChanges Severity = "routeChanges"
	// NotServed: no part of this mesh acts on it, and no control plane configures sidecars and gateways of Istio any more.
	NotServed Severity = "notServed"
	// NameChanges: names, logs, metrics or limits change.
	NameChanges Severity = "nameChanges"
)

// Severities are all severities, the gravest first.
var Severities = []Severity{AccessOpens, AccessCloses, RouteChanges, NotServed, NameChanges}

// Words are what people read for it.
func (s Severity) Words() string {
	switch s {
	case AccessOpens:
		return "access opens"
	case AccessCloses:
		return "access closes"
	case RouteChanges:
		return "connections go another way"
	case NotServed:
		return "no longer configured"
	case NameChanges:
		return "names, logs or limits change"
	}
	return string(s)
}

// DecidesAccess says whether it changes who may connect to whom.
func (s Severity) DecidesAccess() bool { return s == AccessOpens || s == AccessCloses }

// Object names what a difference is about.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// String is the object as people name it.
func (o Object) String() string {
	name := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	return strings.TrimSpace(o.Kind + " " + strings.TrimSuffix(name, "/"))
}

// Difference is one thing that means something else in this mesh. Its JSON form is part of the command line's contract: fields are added,
// never renamed.
type Difference struct {
	// Rule is the row of the reference page that explains the difference.
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Object
	// Field is the field, label, annotation or variable; empty for an object as a whole.
	Field string `json:"field,omitempty"`
	// Today is what Istio's ambient mode does, and Then what this mesh will do.
	Today string `json:"today"`
	Then  string `json:"then"`
	// Keep are lines of YAML, or flags of the command, that keep today's meaning; none if nothing does.
	Keep []string `json:"keep,omitempty"`
	// Objects are the first of the objects that share the difference, and More is how many others do.
	Objects []string `json:"objects,omitempty"`
	More    int      `json:"more,omitempty"`
	// Refuses says that the take-over is refused until the difference is gone or accepted by name.
	Refuses bool `json:"refuses,omitempty"`
	// Accepted says that somebody has accepted it.
	Accepted bool `json:"accepted,omitempty"`
}

// Named is what the difference is accepted by: its field.
func (d Difference) Named() string { return d.Field }

// Settings are those of this mesh that today's settings of Istio are compared with.
type Settings struct {
	TrustDomain        string
	TrustDomainAliases []string
	RootNamespace      string
	ClusterID          string
	Network            string
	// ProxyEnv are variables that the node proxies are given.
	ProxyEnv map[string]string
	// DNSCapture says whether pods' DNS questions are led to the node proxy.
	DNSCapture bool
	// BindAtOnce says that connections go through a waypoint as soon and as long as it can be found, as in Istio.
	BindAtOnce bool
}

// MeshConfig is the text of a MeshConfig and of the networks beside it, and where they stand.
type MeshConfig struct {
	Object
	Mesh, Networks string
}

// Program is a part of Istio and the environment of its container.
type Program struct {
	Object
	Image string
	// Env are the variables with a value; Hidden are those whose value stands elsewhere, with where.
	Env, Hidden map[string]string
}

// Refusal is an object that this mesh refuses as it is written.
type Refusal struct {
	Object
	Field, Message string
	// Effect is the reading in which a refused policy is in force; empty for what has no effect then.
	Effect string
}

// Cluster is what the comparison looks at.
type Cluster struct {
	Settings Settings

	Namespaces            []*corev1.Namespace
	Pods                  []*corev1.Pod
	Services              []*corev1.Service
	AuthorizationPolicies []*securityv1.AuthorizationPolicy
	PeerAuthentications   []*securityv1.PeerAuthentication
	ServiceEntries        []*networkingv1.ServiceEntry
	WorkloadEntries       []*networkingv1.WorkloadEntry
	Gateways              []*gatewayv1.Gateway
	GatewayClasses        []*gatewayv1.GatewayClass
	MeshConfigs           []MeshConfig
	Control, Proxies      []Program
	RemoteClusters        []Object
	Unserved              []Object // of kinds on which no part of this mesh acts
	Refused               []Refusal
	// Unread says what could not be read, and why: it is not judged.
	Unread []string
}

// Report is the outcome of a comparison.
type Report struct {
	Differences []Difference `json:"differences"`
	// Unread says what is not judged because it could not be read.
	Unread []string `json:"unread,omitempty"`
}

// comparison is a Report under construction.
type comparison struct {
	*Cluster
	namespaces map[string]*corev1.Namespace
	mesh       []meshConfig
	out        Report
}

// Compare says what means something else in this mesh than in the Istio that runs.
func Compare(in *Cluster) Report {
	c := &comparison{Cluster: in, namespaces: map[string]*corev1.Namespace{}}
	for _, ns := range in.Namespaces {
		c.namespaces[ns.Name] = ns
	}
	c.out.Unread = slices.Clone(in.Unread)
	c.readMesh()
	for _, compare := range []func(){
		c.authorizations, c.peers, c.refusals, c.meshSettings, environments{in.Control, in.Proxies, in.Settings, &c.out}.compare, c.entries, c.serviceExports, c.udpPorts, c.gateways, binding{c}.unusable, c.membership, c.unserved,
	} {
		compare()
	}
	slices.SortFunc(c.out.Differences, order)
	slices.Sort(c.out.Unread)
	c.out.Unread = slices.Compact(c.out.Unread)
	return c.out
}

// order puts the gravest first, and of these the same object's together.
func order(a, b Difference) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Severities, a.Severity), slices.Index(Severities, b.Severity)),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Then, b.Then),
	)
}

// add records a difference with the texts of its rule where it has none of its own.
func (r *Report) add(rule string, d Difference) {
	texts := ruleNamed(rule)
	d.Rule = rule
	d.Severity = cmp.Or(d.Severity, texts.Severities[0])
	d.Today, d.Then = cmp.Or(d.Today, texts.Today), cmp.Or(d.Then, texts.Then)
	if d.Keep == nil {
		d.Keep = texts.Keep
	}
	r.Differences = append(r.Differences, d)
}

// mostNamed is how many of many objects with one difference are named.
const mostNamed = 20

// name records the first of many objects, and counts the others.
func (d *Difference) name(objects []string) {
	slices.Sort(objects)
	objects = slices.Compact(objects)
	n := min(len(objects), mostNamed)
	d.Objects, d.More = objects[:n], len(objects)-n
}

// Count is how many differences have a severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, d := range r.Differences {
		if d.Severity == s {
			n++
		}
	}
	return n
}

// Refusing are the differences for which the take-over is refused.
func (r Report) Refusing() []Difference {
	return slices.DeleteFunc(slices.Clone(r.Differences), func(d Difference) bool { return !d.Refuses || d.Accepted })
}

// Accept marks the refusing differences of these names as accepted, and returns the names that none has.
func (r *Report) Accept(names []string) (unknown []string) {
	for _, name := range names {
		found := false
		for i := range r.Differences {
			if d := &r.Differences[i]; d.Refuses && d.Named() == name {
				d.Accepted, found = true, true
			}
		}
		if !found {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
