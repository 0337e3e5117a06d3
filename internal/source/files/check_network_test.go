package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChecksOfEntriesAndGateways(t *testing.T) {
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x}\nspec: "
	const machine = "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: x}\nspec: "
	const gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: x}\nspec: "
	for _, c := range []struct{ yaml, want string }{
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}", ""},
		{entry + "{hosts: [a.example.com], resolution: STATIC, ports: [{number: 80, name: HTTP}, {number: 90, name: TCP-db}], endpoints: [{address: 192.0.2.1, ports: {TCP-db: 91}}]}", ""},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: H_TTP}]}", "\"H_TTP\" is not a valid port name; use letters, digits and '-'"},
		{entry + "{resolution: DNS}", "spec.hosts: no host is given"},
		{entry + "{hosts: [\"*\"], resolution: NONE, addresses: [192.0.2.1]}", "spec.hosts[0]: the host is every host"},
		{entry + "{hosts: [a b], resolution: DNS}", "spec.hosts[0]: \"a b\" is not a host name"},
		{entry + "{hosts: [192.0.2.1], resolution: DNS}", "is not a host name"},
		{entry + "{hosts: [\"*.example.com\"], resolution: DNS}", "cannot be resolved"},
		{entry + "{hosts: [\"*.example.com\"], resolution: DNS, endpoints: [{address: e.example.com}]}", ""},
		{entry + "{hosts: [a.example.com], resolution: DYNAMIC_DNS}", "for wildcard hosts"},
		{entry + "{hosts: [a.example.com], resolution: DNS, addresses: [10.0.0.0/24]}", "spec.addresses[0]: a CIDR goes with"},
		{entry + "{hosts: [a.example.com], resolution: DNS, addresses: [x]}", "neither an IP address nor a CIDR"},
		{entry + "{hosts: [a.example.com], resolution: NONE}", "recognise nothing"},
		{entry + "{hosts: [a.example.com], resolution: STATIC}", "reaches nothing"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: e.example.com}]}", "is not an IP address"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: 192.0.2.1, ports: {x: 1}}]}", "no port of this name"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: 192.0.2.1}, {address: 192.0.2.1}]}", "listed twice"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: 192.0.2.1}], workloadSelector: {labels: {a: b}}}", "both endpoints and a workloadSelector"},
		{entry + "{hosts: [a.example.com], resolution: NONE, addresses: [192.0.2.1], endpoints: [{address: 192.0.2.1}]}", "takes no endpoints"},
		{entry + "{hosts: [a.example.com], resolution: DNS_ROUND_ROBIN, endpoints: [{address: 192.0.2.1}, {address: 192.0.2.2}]}", "one endpoint at most"},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 0, name: http}]}", "port 0 is out of range"},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80}]}", "is not a valid port name"},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: a}, {number: 80, name: b}]}", "port 80 is listed twice"},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [{number: 80, name: a, protocol: HTPP}]}", "unknown protocol"},
		{entry + "{hosts: [a.example.com, b.example.com], resolution: DNS, ports: [{number: 80, name: a, protocol: TCP}]}", "does not tell them apart"},
		{entry + "{hosts: [a.example.com], resolution: DNS, exportTo: [\"*\", a]}", "stands alone"},
		{entry + "{hosts: [a.example.com], resolution: DNS, exportTo: [., default]}", "listed twice"},
		{entry + "{hosts: [a.example.com], resolution: DNS, exportTo: [A_b]}", "is not a namespace"},
		{entry + "{hosts: [a.example.com], resolution: DNS, ports: [null]}", "null"},
		{machine + "{address: 192.0.2.1, locality: a/b/c}", ""},
		{machine + "{address: vm.example.com}", ""},
		{machine + "{address: 192.0.2.1, serviceAccount: a/b}", "spec.serviceAccount: \"a/b\" is not the name of a service account"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: 192.0.2.1, serviceAccount: a/b}]}", "spec.endpoints[0].serviceAccount"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {serviceAccountName: a/b}", "spec.serviceAccountName"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {initContainers: [{name: x, ports: [{containerPort: 70000}]}]}", "spec.initContainers[0].ports[0].containerPort"},
		{machine + "{address: 127.0.0.1}", "spec.address: 127.0.0.1 leads every client to itself"},
		{machine + "{address: \"::ffff:127.0.0.9\"}", "leads every client to itself"},
		{machine + "{address: \"::\"}", "leads every client to itself"},
		{machine + "{address: 224.0.0.1}", "leads every client to itself"},
		{machine + "{address: 255.255.255.255}", "leads every client to itself"},
		{entry + "{hosts: [a.example.com], resolution: STATIC, endpoints: [{address: \"::1\"}]}", "spec.endpoints[0].address: ::1 leads"},
		{machine + "{}", "the address is missing"},
		{machine + "{address: \"unix:///run/x\"}", "unix sockets"},
		{machine + "{address: 192.0.2.1, locality: a/b/c/d}", "more than three parts"},
		{machine + "{address: 192.0.2.1, ports: {x: 70000}}", "out of range"},
		{machine + "{address: 192.0.2.1, labels: {a: \"b c\"}}", "is not a valid label value"},
		{gateway + "{gatewayClassName: istio-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}", ""},
		{gateway + "{gatewayClassName: istio-waypoint}", "there is no listener"},
		{gateway + "{listeners: [{name: m, protocol: HBONE, port: 15008}]}", "the class is missing"},
		{gateway + "{gatewayClassName: a, listeners: [{name: m, protocol: HBONE, port: 1}, {name: m, protocol: HBONE, port: 2}]}", "used twice"},
		{gateway + "{gatewayClassName: a, listeners: [{name: m, protocol: HBONE, port: 1, allowedRoutes: {namespaces: {from: Everywhere}}}]}", "unknown value \"Everywhere\""},
		{gateway + "{gatewayClassName: a, listener: []}", "did you mean listeners?"},
	} {
		_, problems := Decode("f.yaml", []byte(c.yaml))
		var said []string
		for _, p := range problems {
			said = append(said, p.Error())
		}
		if text := strings.Join(said, "\n"); !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s:\n%s\nwant %q", strings.TrimPrefix(c.yaml, "apiVersion: "), text, c.want)
		}
		for _, p := range problems {
			if p.Severity == Refused && p.Fix == "" {
				t.Errorf("no fix: %v", p)
			}
		}
	}
}

func TestTheEgressSampleIsTaken(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "samples", "egress", "egress.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if objects, problems := Decode("egress.yaml", data); len(objects) != 5 || len(problems) != 0 {
		t.Errorf("%d objects, %v", len(objects), problems)
	}
}
