package files

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// checkServiceEntry refuses what Istio's own validation refuses.
func checkServiceEntry(o metav1.Object) []fault {
	se := o.(*networkingv1.ServiceEntry)
	spec := &se.Spec
	var faults []fault
	if _, known := networkingapi.ServiceEntry_Resolution_name[int32(spec.Resolution)]; !known {
		faults = append(faults, fault{field: "spec.resolution", message: fmt.Sprintf("unknown resolution %d", spec.Resolution), fix: "use one of NONE, STATIC, DNS, DNS_ROUND_ROBIN, DYNAMIC_DNS"})
	}
	if _, known := networkingapi.ServiceEntry_Location_name[int32(spec.Location)]; !known {
		faults = append(faults, fault{field: "spec.location", message: fmt.Sprintf("unknown location %d", spec.Location), fix: "use one of MESH_EXTERNAL, MESH_INTERNAL"})
	}
	if spec.WorkloadSelector != nil && len(spec.Endpoints) > 0 {
		faults = append(faults, fault{field: "spec.endpoints", message: "both endpoints and a workloadSelector are given", fix: "keep one of the two"})
	}
	if spec.WorkloadSelector != nil && len(spec.WorkloadSelector.Labels) == 0 {
		faults = append(faults, fault{severity: Warning, field: "spec.workloadSelector", message: "an empty selector chooses nothing", fix: "add labels"})
	}
	faults = append(faults, checkLabels("spec.workloadSelector.labels", spec.GetWorkloadSelector().GetLabels())...)
	faults = append(faults, checkEntryHosts(spec)...)
	faults = append(faults, checkEntryAddresses(spec)...)
	faults = append(faults, checkEntryPorts(spec)...)
	faults = append(faults, checkEntryEndpoints(spec)...)
	return append(faults, checkExportTo(se.Namespace, spec.ExportTo)...)
}

func checkEntryHosts(spec *networkingapi.ServiceEntry) []fault {
	var faults []fault
	if len(spec.Hosts) == 0 {
		faults = append(faults, fault{field: "spec.hosts", message: "no host is given", fix: "name one"})
	}
	resolved := (spec.Resolution == networkingapi.ServiceEntry_DNS || spec.Resolution == networkingapi.ServiceEntry_DNS_ROUND_ROBIN) && len(spec.Endpoints) == 0 && spec.WorkloadSelector == nil
	dynamic := spec.Resolution == networkingapi.ServiceEntry_DYNAMIC_DNS
	for i, h := range spec.Hosts {
		field := fmt.Sprintf("spec.hosts[%d]", i)
		wildcard := strings.HasPrefix(h, "*")
		switch {
		case h == "*":
			faults = append(faults, fault{field: field, message: "the host is every host", fix: "name a domain, such as *.example.com"})
		case !validHost(h):
			faults = append(faults, fault{field: field, message: fmt.Sprintf("%.100q is not a host name", h), fix: "write a name such as api.example.com or *.example.com"})
		case wildcard && resolved:
			faults = append(faults, fault{field: field, message: fmt.Sprintf("%.100q cannot be resolved: it stands for many names", h), fix: "name endpoints, or use resolution NONE or DYNAMIC_DNS"})
		case !wildcard && dynamic:
			faults = append(faults, fault{field: field, message: "DYNAMIC_DNS is for wildcard hosts", fix: "use resolution DNS"})
		}
	}
	return faults
}

// validHost accepts a DNS name whose first label may be a star.
func validHost(h string) bool {
	h = strings.ToLower(strings.TrimPrefix(h, "*."))
	if len(h) == 0 || len(h) > 253 {
		return false
	}
	for _, label := range strings.Split(h, ".") {
		// Underscores are no host names by the letter and in use all the same.
		if len(validation.IsDNS1123Label(strings.ReplaceAll(label, "_", "a"))) > 0 {
			return false
		}
	}
	_, err := netip.ParseAddr(h)
	return err != nil
}

func checkEntryAddresses(spec *networkingapi.ServiceEntry) []fault {
	var faults []fault
	for i, a := range spec.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		if !validBlock(a) {
			faults = append(faults, fault{field: field, message: fmt.Sprintf("%.100q is neither an IP address nor a CIDR", a), fix: fixIP})
			continue
		}
		if strings.Contains(a, "/") && spec.Resolution != networkingapi.ServiceEntry_NONE && spec.Resolution != networkingapi.ServiceEntry_STATIC {
			faults = append(faults, fault{field: field, message: "a CIDR goes with resolution NONE or STATIC only", fix: "write single addresses, or change spec.resolution"})
		}
	}
	if len(spec.Addresses) > 0 && spec.Resolution == networkingapi.ServiceEntry_DYNAMIC_DNS {
		faults = append(faults, fault{field: "spec.addresses", message: "DYNAMIC_DNS takes no addresses", fix: "remove the field"})
	}
	if spec.Resolution == networkingapi.ServiceEntry_NONE && len(spec.Addresses) == 0 && allTCP(spec.Ports) {
		faults = append(faults, fault{severity: Warning, field: "spec.addresses", message: "with resolution NONE and no addresses node proxies recognise nothing of this entry", fix: "give the addresses or CIDRs that it stands for"})
	}
	return faults
}

func allTCP(ports []*networkingapi.ServicePort) bool {
	return !slices.ContainsFunc(ports, func(p *networkingapi.ServicePort) bool { return strings.EqualFold(p.GetProtocol(), "UDP") })
}

// multiplexed are the protocols that name the host they are for.
var multiplexed = []string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTP_PROXY", "HTTPS", "TLS"}

// entryProtocols are Istio's names of protocols.
var entryProtocols = append([]string{"", "TCP", "UDP", "MONGO", "REDIS", "MYSQL", "HBONE", "DOUBLEHBONE"}, multiplexed...)

func checkEntryPorts(spec *networkingapi.ServiceEntry) []fault {
	var faults []fault
	names, numbers := map[string]bool{}, map[uint32]bool{}
	opaque := false
	for i, p := range spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		if p == nil {
			faults = append(faults, fault{field: field, message: "the port is null", fix: "remove the entry"})
			continue
		}
		if p.Number < 1 || p.Number > 65535 {
			faults = append(faults, fault{field: field + ".number", message: fmt.Sprintf("port %d is out of range", p.Number), fix: "use 1 to 65535"})
		}
		if p.TargetPort > 65535 {
			faults = append(faults, fault{field: field + ".targetPort", message: fmt.Sprintf("port %d is out of range", p.TargetPort), fix: "use 1 to 65535"})
		}
		// Istio takes capital letters, as older entries have them.
		if len(validation.IsDNS1123Label(strings.ToLower(p.Name))) > 0 {
			faults = append(faults, fault{field: field + ".name", message: fmt.Sprintf("%.100q is not a valid port name", p.Name), fix: "use letters, digits and '-', at most 63 characters"})
		}
		if names[p.Name] {
			faults = append(faults, fault{field: field + ".name", message: fmt.Sprintf("%.100q is used twice", p.Name), fix: "give each port its own name"})
		}
		if numbers[p.Number] {
			faults = append(faults, fault{field: field + ".number", message: fmt.Sprintf("port %d is listed twice", p.Number), fix: "remove one of the two"})
		}
		names[p.Name], numbers[p.Number] = true, true
		protocol := strings.ToUpper(p.Protocol)
		if !slices.Contains(entryProtocols, protocol) {
			faults = append(faults, fault{field: field + ".protocol", message: fmt.Sprintf("unknown protocol %.100q", p.Protocol), fix: "use one of " + strings.Join(entryProtocols[1:], ", ")})
		}
		opaque = opaque || !slices.Contains(multiplexed, protocol)
		if spec.Resolution == networkingapi.ServiceEntry_DYNAMIC_DNS && !slices.Contains([]string{"HTTP", "HTTP2", "GRPC", "TLS"}, protocol) {
			faults = append(faults, fault{field: field + ".protocol", message: "DYNAMIC_DNS needs a protocol that names its host", fix: "use one of HTTP, HTTP2, GRPC, TLS"})
		}
	}
	if len(spec.Hosts) > 1 && opaque && spec.Resolution != networkingapi.ServiceEntry_NONE && len(spec.Ports) > 0 {
		faults = append(faults, fault{field: "spec.hosts", message: "several hosts share a port whose protocol does not tell them apart", fix: "write an entry for each host, or use an HTTP or TLS protocol"})
	}
	return faults
}

func checkEntryEndpoints(spec *networkingapi.ServiceEntry) []fault {
	var faults []fault
	switch {
	case spec.Resolution == networkingapi.ServiceEntry_NONE && len(spec.Endpoints) > 0:
		faults = append(faults, fault{field: "spec.endpoints", message: "resolution NONE takes no endpoints: connections go where the client sends them", fix: "remove the field, or use resolution STATIC"})
	case spec.Resolution == networkingapi.ServiceEntry_DYNAMIC_DNS && len(spec.Endpoints) > 0:
		faults = append(faults, fault{field: "spec.endpoints", message: "DYNAMIC_DNS takes no endpoints", fix: "remove the field"})
	case spec.Resolution == networkingapi.ServiceEntry_DNS_ROUND_ROBIN && len(spec.Endpoints) > 1:
		faults = append(faults, fault{field: "spec.endpoints", message: "DNS_ROUND_ROBIN takes one endpoint at most", fix: "keep one, or use resolution DNS"})
	case spec.Resolution == networkingapi.ServiceEntry_STATIC && len(spec.Endpoints) == 0 && spec.WorkloadSelector == nil:
		faults = append(faults, fault{severity: Warning, field: "spec.endpoints", message: "resolution STATIC without endpoints reaches nothing", fix: "add endpoints or a workloadSelector"})
	}
	names := map[string]bool{}
	for _, p := range spec.Ports {
		names[p.GetName()] = true
	}
	seen := map[string]bool{}
	for i, e := range spec.Endpoints {
		field := fmt.Sprintf("spec.endpoints[%d]", i)
		if e == nil {
			faults = append(faults, fault{field: field, message: "the endpoint is null", fix: "remove the entry"})
			continue
		}
		if e.Address != "" && seen[e.Address] {
			faults = append(faults, fault{severity: Warning, field: field + ".address", message: fmt.Sprintf("%s is listed twice; the first counts", e.Address), fix: "give its weight and ports once"})
		}
		seen[e.Address] = true
		faults = append(faults, checkEndpoint(field, e, names, spec.Resolution != networkingapi.ServiceEntry_STATIC)...)
	}
	return faults
}

// checkEndpoint judges one place where a service is; ports, if not nil, are the names that it may use.
func checkEndpoint(path string, e *networkingapi.WorkloadEntry, ports map[string]bool, hostname bool) []fault {
	faults := checkLabels(join(path, "labels"), e.Labels)
	faults = append(faults, checkServiceAccount(join(path, "serviceAccount"), e.ServiceAccount)...)
	addr, err := netip.ParseAddr(e.Address)
	switch {
	case e.Address == "" && e.Network == "":
		faults = append(faults, fault{field: join(path, "address"), message: "the address is missing", fix: "write an IP address or a host name, or name the network whose gateway leads there"})
	case e.Address == "": // its network's gateway knows where it is
	case strings.HasPrefix(e.Address, "unix://"):
		faults = append(faults, fault{severity: Warning, field: join(path, "address"), message: "node proxies do not reach unix sockets", fix: "write an IP address"})
	case err == nil && addr.Zone() == "" && nobodys(addr.Unmap()):
		faults = append(faults, fault{field: join(path, "address"), message: fmt.Sprintf("%s leads every client to itself or to many", e.Address), fix: "write the address at which other machines reach it"})
	case err == nil && addr.Zone() == "":
	case !hostname:
		faults = append(faults, fault{field: join(path, "address"), message: fmt.Sprintf("%.100q is not an IP address", e.Address), fix: "write an IP address, or use resolution DNS"})
	case strings.HasPrefix(e.Address, "*") || !validHost(e.Address):
		faults = append(faults, fault{field: join(path, "address"), message: fmt.Sprintf("%.100q is neither an IP address nor a host name", e.Address), fix: "write one of the two"})
	}
	for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
		field := join(path, "ports."+name)
		if ports != nil && !ports[name] {
			faults = append(faults, fault{field: field, message: "the entry has no port of this name", fix: "use a name of spec.ports"})
		}
		if n := e.Ports[name]; n < 1 || n > 65535 {
			faults = append(faults, fault{field: field, message: fmt.Sprintf("port %d is out of range", n), fix: "use 1 to 65535"})
		}
	}
	if strings.Count(e.Locality, "/") > 2 {
		faults = append(faults, fault{field: join(path, "locality"), message: fmt.Sprintf("%.100q has more than three parts", e.Locality), fix: "write region/zone/subzone"})
	}
	return faults
}

// nobodys says whether an address is that of no one machine: each client would dial its own loopback.
func nobodys(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// checkServiceAccount judges a name that becomes part of an identity; none means the default one.
func checkServiceAccount(field, name string) []fault {
	if name == "" || len(validation.IsDNS1123Subdomain(name)) == 0 {
		return nil
	}
	return []fault{{field: field, message: fmt.Sprintf("%.100q is not the name of a service account", name), fix: "use lower-case letters, digits, '-' and '.', without namespace"}}
}

func checkExportTo(namespace string, exportTo []string) []fault {
	var faults tally
	seen := map[string]bool{}
	for i, e := range exportTo {
		name := e
		if e == "." {
			name = namespace
		}
		wrong, fix := "", ""
		switch {
		case (e == "*" || e == "~") && len(exportTo) > 1:
			wrong, fix = "stands alone", "remove it or the others"
		case e != "*" && e != "~" && e != "." && len(validation.IsDNS1123Label(e)) > 0:
			wrong, fix = "is not a namespace", `use ".", "*", "~" or the name of a namespace`
		case seen[name]:
			wrong, fix = "is listed twice", "remove one of the two"
		}
		if wrong != "" && !faults.full() {
			faults.add(fault{field: fmt.Sprintf("spec.exportTo[%d]", i), message: fmt.Sprintf("%.100q %s", e, wrong), fix: fix})
		}
		seen[name] = true
	}
	return faults.all()
}

func checkWorkloadEntry(o metav1.Object) []fault {
	we := o.(*networkingv1.WorkloadEntry)
	return checkEndpoint("spec", &we.Spec, nil, true)
}

// checkGateway judges what makes a Gateway a waypoint or the way to another network.
func checkGateway(o metav1.Object) []fault {
	gw := o.(*gatewayv1.Gateway)
	var faults []fault
	if gw.Spec.GatewayClassName == "" {
		faults = append(faults, fault{field: "spec.gatewayClassName", message: "the class is missing", fix: "use istio-waypoint or lateen-waypoint for a waypoint"})
	}
	if len(gw.Spec.Listeners) == 0 {
		faults = append(faults, fault{field: "spec.listeners", message: "there is no listener", fix: "add one; a waypoint's has protocol HBONE and port 15008"})
	}
	names := map[gatewayv1.SectionName]bool{}
	for i, l := range gw.Spec.Listeners {
		field := fmt.Sprintf("spec.listeners[%d]", i)
		if l.Name == "" || names[l.Name] {
			faults = append(faults, fault{field: field + ".name", message: fmt.Sprintf("%.100q is missing or used twice", l.Name), fix: "give each listener its own name"})
		}
		names[l.Name] = true
		if l.Port < 1 || l.Port > 65535 {
			faults = append(faults, fault{field: field + ".port", message: fmt.Sprintf("port %d is out of range", l.Port), fix: "use 1 to 65535"})
		}
		if l.AllowedRoutes == nil || l.AllowedRoutes.Namespaces == nil {
			continue
		}
		n := l.AllowedRoutes.Namespaces
		if n.From != nil && !slices.Contains([]gatewayv1.FromNamespaces{gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector, gatewayv1.NamespacesFromNone}, *n.From) {
			faults = append(faults, fault{field: field + ".allowedRoutes.namespaces.from", message: fmt.Sprintf("unknown value %.100q", *n.From), fix: "use one of All, Same, Selector, None"})
		}
		if _, err := metav1.LabelSelectorAsSelector(n.Selector); err != nil {
			faults = append(faults, fault{field: field + ".allowedRoutes.namespaces.selector", message: err.Error(), fix: "correct the selector"})
		}
	}
	for i, a := range gw.Status.Addresses {
		if a.Type == nil || *a.Type == gatewayv1.IPAddressType {
			faults = append(faults, checkIP("status.addresses["+strconv.Itoa(i)+"].value", a.Value)...)
		}
	}
	return faults
}
