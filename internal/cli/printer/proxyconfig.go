package printer

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// ProxyWorkload is a workload that a node proxy can reach, or that is its own.
type ProxyWorkload struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	Node      string   `json:"node,omitempty"`
	// Protocol is HBONE if the proxy reaches the workload through the mesh, else TCP.
	Protocol string `json:"protocol"`
	Status   string `json:"status"`
	// ServiceAccount is the account of its identity.
	ServiceAccount string   `json:"serviceAccount,omitempty"`
	Workload       string   `json:"workload,omitempty"` // the Deployment or other object that it belongs to
	Services       []string `json:"services,omitempty"` // namespace/hostname
	Policies       []string `json:"policies,omitempty"` // namespace/name of those that select it by labels
	Zone           string   `json:"zone,omitempty"`
}

// ProxyService is a service as a node proxy balances it.
type ProxyService struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Hostname  string          `json:"hostname"`
	Addresses []string        `json:"addresses"`
	Ports     []string        `json:"ports"` // PORT or PORT:TARGET, in the order of the ports
	Endpoints []ProxyEndpoint `json:"endpoints"`
}

// ProxyEndpoint is one endpoint of a service.
type ProxyEndpoint struct {
	Workload  string   `json:"workload"` // namespace/name, or its uid if the proxy does not know it
	Addresses []string `json:"addresses,omitempty"`
	Status    string   `json:"status"`
}

// ProxyPolicy is an authorization policy as a node proxy decides by it.
type ProxyPolicy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Action    string `json:"action"`
	Scope     string `json:"scope"`
	DryRun    bool   `json:"dryRun"`
	// Workloads counts the workloads that a policy with a selector applies to, over the whole mesh; nil with another scope.
	Workloads *int `json:"workloads,omitempty"`
	// Rules are the rules in words, one each. A connection matches a policy if it matches a rule.
	Rules []string `json:"rules"`
}

// ProxyCertificate is the certificate of one identity. It never holds a key.
type ProxyCertificate struct {
	Identity   string    `json:"identity"`
	State      string    `json:"state"`
	Serial     string    `json:"serial,omitempty"` // hexadecimal
	ValidFrom  time.Time `json:"validFrom,omitzero"`
	ValidUntil time.Time `json:"validUntil,omitzero"`
	// Roots are the certificates that it trusts peers by.
	Roots []ProxyRoot `json:"roots"`
}

// ProxyRoot is a trusted root certificate.
type ProxyRoot struct {
	Subject    string    `json:"subject"`
	Serial     string    `json:"serial"`
	ValidUntil time.Time `json:"validUntil,omitzero"`
}

// ProxyConnection is a connection of a pod that a node proxy carries.
type ProxyConnection struct {
	Namespace   string `json:"namespace"`
	Pod         string `json:"pod"`
	Direction   string `json:"direction"` // inbound or outbound
	Source      string `json:"source"`
	Destination string `json:"destination"` // as the client asked for it
	Actual      string `json:"actualDestination,omitempty"`
	Protocol    string `json:"protocol"`
	Peer        string `json:"peer,omitempty"`
	State       string `json:"state,omitempty"`
	AllowedBy   string `json:"allowedBy,omitempty"`
	// AgeSeconds is nil if the proxy does not tell, as an unmodified ztunnel.
	AgeSeconds *float64 `json:"ageSeconds,omitempty"`
}

// View is a table of a part of a node proxy's configuration. It is no wider than so many columns; 0 is a pipe, in which nothing is cut.
type View struct {
	Wide    bool
	Columns int
	Now     time.Time
}

func (v View) print(w io.Writer, g *Grid, names, spare []int) error {
	if v.Columns > 0 {
		g.Fit(v.Columns, names, spare)
	}
	return g.Print(w, "")
}

// Workloads writes a table of workloads.
func (v View) Workloads(w io.Writer, list []ProxyWorkload) error {
	heading := []string{"NAMESPACE", "NAME", "ADDRESSES", "NODE", "PROTOCOL", "STATUS"}
	names, spare := []int{1, 2, 0, 3}, []int{5, 3}
	if v.Wide {
		heading = append(heading, "ACCOUNT", "WORKLOAD", "ZONE", "SERVICES", "POLICIES")
		names, spare = []int{10, 9, 1, 2, 0, 6, 7, 3}, []int{8, 7, 5, 3, 10, 9, 6}
	}
	g := NewGrid(heading...)
	for _, x := range list {
		g.Row(x.Namespace, x.Name, strings.Join(x.Addresses, ","), x.Node, x.Protocol, x.Status,
			x.ServiceAccount, x.Workload, x.Zone, strings.Join(x.Services, ","), strings.Join(x.Policies, ","))
	}
	return v.print(w, g, names, spare)
}

// Services writes a table of services; a wide one names the endpoints.
func (v View) Services(w io.Writer, list []ProxyService) error {
	heading := []string{"NAMESPACE", "HOSTNAME", "ADDRESSES", "PORTS", "HEALTHY"}
	names, spare := []int{1, 2, 3, 0}, []int{3}
	if v.Wide {
		heading = append(heading, "ENDPOINTS")
		names, spare = []int{5, 1, 2, 3, 0}, []int{3, 2}
	}
	g := NewGrid(heading...)
	for _, x := range list {
		healthy, endpoints := 0, make([]string, len(x.Endpoints))
		for i, e := range x.Endpoints {
			if e.Status == "Healthy" {
				healthy++
			}
			endpoints[i] = e.Workload
			if len(e.Addresses) > 0 {
				endpoints[i] = strings.Join(e.Addresses, "+")
			}
			if e.Status != "Healthy" {
				endpoints[i] += " (" + e.Status + ")"
			}
		}
		g.Row(x.Namespace, x.Hostname, strings.Join(x.Addresses, ","), strings.Join(x.Ports, ","),
			fmt.Sprintf("%d of %d", healthy, len(x.Endpoints)), strings.Join(endpoints, ","))
	}
	return v.print(w, g, names, spare)
}

// Policies writes a table of policies; a wide one has the rules in words.
func (v View) Policies(w io.Writer, list []ProxyPolicy) error {
	heading := []string{"NAMESPACE", "NAME", "ACTION", "MODE", "APPLIES TO", "RULES"}
	names, spare := []int{1, 0}, []int{5}
	if v.Wide {
		names, spare = []int{5, 1, 0}, []int{4}
	}
	g := NewGrid(heading...)
	for _, x := range list {
		mode, rules := "enforced", fmt.Sprint(len(x.Rules))
		if x.DryRun {
			mode = "dry-run"
		}
		if v.Wide {
			rules = strings.Join(x.Rules, " | ")
		}
		g.Row(x.Namespace, x.Name, strings.ToUpper(x.Action), mode, appliesTo(x), rules)
	}
	return v.print(w, g, names, spare)
}

func appliesTo(x ProxyPolicy) string {
	switch {
	case x.Workloads != nil:
		return plural(*x.Workloads, "workload")
	case x.Scope == "Namespace":
		return "its namespace"
	case x.Scope == "Global":
		return "the whole mesh"
	}
	return x.Scope
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Certificates writes a table of certificates.
func (v View) Certificates(w io.Writer, list []ProxyCertificate) error {
	heading := []string{"IDENTITY", "STATE", "EXPIRES IN", "SERIAL", "ROOT"}
	names, spare := []int{0, 4, 3, 1}, []int{4, 3}
	if v.Wide {
		heading = []string{"IDENTITY", "STATE", "VALID FROM", "VALID UNTIL", "SERIAL", "ROOT", "ROOT SERIAL", "ROOT VALID UNTIL"}
		names, spare = []int{0, 5, 4, 6, 7, 1}, []int{6, 7, 4, 2}
	}
	g := NewGrid(heading...).Copied(0)
	for _, x := range list {
		var subjects, serials, ends []string
		for _, r := range x.Roots {
			subjects, serials, ends = append(subjects, r.Subject), append(serials, r.Serial), append(ends, instant(r.ValidUntil))
		}
		root := strings.Join(subjects, "; ")
		if !v.Wide {
			g.Row(x.Identity, x.State, expiry(x.ValidUntil, v.Now), x.Serial, root)
			continue
		}
		g.Row(x.Identity, x.State, instant(x.ValidFrom), instant(x.ValidUntil), x.Serial, root, strings.Join(serials, ","), strings.Join(ends, ","))
	}
	return v.print(w, g, names, spare)
}

// instant is a time to the second, as RFC 3339 writes it; empty if there is none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func expiry(until, now time.Time) string {
	switch {
	case until.IsZero():
		return ""
	case !until.After(now):
		return "expired"
	}
	return Age(now, until)
}

// Connections writes a table of connections.
func (v View) Connections(w io.Writer, list []ProxyConnection) error {
	heading := []string{"NAMESPACE", "POD", "DIRECTION", "SOURCE", "DESTINATION", "PROTOCOL", "AGE"}
	names, spare := []int{1, 0, 3, 4}, []int{6, 0, 5}
	if v.Wide {
		heading = append(heading, "STATE", "PEER", "ALLOWED BY", "ACTUAL DESTINATION")
		names, spare = []int{8, 1, 9, 10, 0, 3, 4}, []int{10, 6, 7, 0, 5, 9, 3}
	}
	g := NewGrid(heading...)
	for _, x := range list {
		age := ""
		if x.AgeSeconds != nil {
			age = Age(v.Now.Add(-time.Duration(*x.AgeSeconds*float64(time.Second))), v.Now)
		}
		g.Row(x.Namespace, x.Pod, x.Direction, x.Source, x.Destination, x.Protocol, age,
			x.State, x.Peer, x.AllowedBy, x.Actual)
	}
	return v.print(w, g, names, spare)
}

// ClientConnections writes a table of the connections of a waypoint's clients.
func (v View) ClientConnections(w io.Writer, list []api.ClientConnection) error {
	heading := []string{"SOURCE", "SERVICE", "PROTOCOL", "REQUESTS", "TO-SERVER", "TO-CLIENT", "AGE"}
	names, spare := []int{0, 1}, []int{6, 4, 5, 2}
	if v.Wide {
		heading = append(heading, "IDENTITY", "ADDRESS", "DESTINATION")
		names, spare = []int{7, 0, 1, 8, 9}, []int{9, 8, 6, 4, 5, 2}
	}
	g := NewGrid(heading...)
	for _, c := range list {
		requests := ""
		if c.Requests != nil {
			requests = strconv.Itoa(*c.Requests)
		}
		to := c.Service
		if to == "" {
			to = Names{}.end(c.Destination, "")
		}
		age := Age(v.Now.Add(-time.Duration(c.Seconds*float64(time.Second))), v.Now)
		g.Row(Names{}.Source(c.Connection), to, c.Protocol, requests, Bytes(c.Bytes.ClientToServer), Bytes(c.Bytes.ServerToClient), age,
			c.Source.Identity, c.Source.Address, c.Destination.Address)
	}
	return v.print(w, g, names, spare)
}
