package analyse

import (
	"strings"
	"testing"
)

// service is one of namespace default, with labels and ports.
func service(name, labels, ports string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: default, labels: {" + labels + "}}\nspec: {clusterIP: 10.96.0.7, ports: [" + ports + "]}\n"
}

func tokens(target, rules string) string {
	return "---\napiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: jwt, namespace: default}\nspec: {targetRefs: [" + target + "], jwtRules: [" + rules + "]}\n"
}

func TestPortsWithoutAProtocolBehindARequestAuthenticationAreNamed(t *testing.T) {
	const (
		gateway  = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, namespace: default}\nspec: {gatewayClassName: lateen-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}\n"
		behind   = "istio.io/use-waypoint: wp"
		issuer   = "{issuer: https://issuer.example}"
		ofCache  = `{kind: Service, group: "", name: cache}`
		ofAll    = "{kind: Gateway, group: gateway.networking.k8s.io, name: wp}"
		ofClass  = "{kind: GatewayClass, group: gateway.networking.k8s.io, name: lateen-waypoint}"
		entryFix = "set spec.ports[].protocol of the ServiceEntry to HTTP, or to TCP if it carries no requests\n"
		entry    = "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: far, namespace: default, labels: {istio.io/use-waypoint: wp}}\nspec: {hosts: [far.example], addresses: [10.1.2.3], resolution: STATIC, ports: [{number: 80, name: a, protocol: HTTP}, {number: 6379, name: b, protocol: HTTP_PROXY}], endpoints: [{address: 10.1.2.4}]}\n"
		said1    = "untyped-port info |spec.targetRefs[0]|port 6379 of Service default/cache has no protocol that the mesh knows: text that is no valid request is refused there, since a server might read a request with a token in it|set appProtocol of the Service's port to http, or to tcp if it carries no requests\n"
	)
	for name, x := range map[string]struct{ objects, want string }{
		"a port that names none":            {gateway + service("cache", behind, "{port: 6379}") + tokens(ofCache, issuer), said1},
		"a port of another name":            {gateway + service("cache", behind, "{name: amqp, port: 6379}") + tokens(ofCache, issuer), said1},
		"by the waypoint":                   {gateway + service("cache", behind, "{port: 6379}") + tokens(ofAll, issuer), said1},
		"several ports and services":        {gateway + service("cache", behind, "{name: a, port: 6379}, {name: b, port: 6380}, {name: http, port: 80}") + entry + tokens(ofAll, issuer), strings.TrimSuffix(strings.Replace(said1, "port 6379 of Service default/cache has", "ports 6379, 6380 of Service default/cache, port 6379 of ServiceEntry default/far have", 1), "\n") + "; " + entryFix},
		"a ServiceEntry":                    {gateway + entry + tokens("{kind: ServiceEntry, group: networking.istio.io, name: far}", issuer), strings.Replace(said1[:strings.LastIndex(said1, "|")+1], "Service default/cache", "ServiceEntry default/far", 1) + entryFix},
		"by the class, from the root":       {gateway + service("cache", behind, "{port: 6379}") + strings.Replace(tokens(ofClass, issuer), "namespace: default", "namespace: istio-system", 1), said1},
		"by Istio's class, from the root":   {gateway + service("cache", behind, "{port: 6379}") + strings.NewReplacer("namespace: default", "namespace: istio-system", "lateen-waypoint", "istio-waypoint").Replace(tokens(ofClass, issuer)), said1},
		"a database":                        {gateway + service("cache", behind, "{name: redis, port: 6379}") + tokens(ofCache, issuer), ""},
		"by the class, from elsewhere":      {gateway + service("cache", behind, "{port: 6379}") + tokens(ofClass, issuer), ""},
		"another namespace's":               {gateway + service("cache", behind, "{port: 6379}") + tokens(strings.Replace(ofCache, "name:", "namespace: other, name:", 1), issuer), ""},
		"a Gateway of another group":        {gateway + service("cache", behind, "{port: 6379}") + tokens("{kind: Gateway, group: networking.istio.io, name: wp}", issuer), ""},
		"a Service of another group":        {gateway + service("cache", behind, "{port: 6379}") + tokens("{kind: Service, group: serving.example, name: cache}", issuer), ""},
		"a Service of group core":           {gateway + service("cache", behind, "{port: 6379}") + tokens("{kind: Service, group: core, name: cache}", issuer), said1},
		"named by its name":                 {gateway + service("cache", behind, "{name: tcp-redis, port: 6379}") + tokens(ofCache, issuer), ""},
		"named by appProtocol":              {gateway + service("cache", behind, "{name: amqp, port: 6379, appProtocol: tcp}") + tokens(ofCache, issuer), ""},
		"requests of gRPC-Web":              {gateway + service("cache", behind, "{name: grpc-web-api, port: 6379}") + tokens(ofCache, issuer), ""},
		"UDP":                               {gateway + service("cache", behind, "{port: 6379, protocol: UDP}") + tokens(ofCache, issuer), ""},
		"a port on which the server speaks": {gateway + service("cache", behind, "{port: 3306}") + tokens(ofCache, issuer), ""},
		"another service":                   {gateway + service("cache", behind, "{port: 6379}") + tokens(`{kind: Service, group: "", name: web}`, issuer), ""},
		"a service behind no waypoint":      {gateway + service("cache", "", "{port: 6379}") + tokens(ofCache, issuer), ""},
		"a waypoint that takes workloads":   {strings.Replace(gateway, "namespace: default}", "namespace: default, labels: {istio.io/waypoint-for: workload}}", 1) + service("cache", behind, "{port: 6379}") + tokens(ofCache, issuer), ""},
		"a waypoint of another controller":  {strings.Replace(gateway, "lateen-waypoint", "istio-waypoint", 1) + service("cache", behind, "{port: 6379}") + tokens(ofCache, issuer), ""},
		"no rule asks for a token":          {gateway + service("cache", behind, "{port: 6379}") + tokens(ofCache, ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(Analyse(input(t, mesh, namespace("default", "istio.io/dataplane-mode: ambient"), x.objects))); got != x.want {
				t.Errorf("got\n%s\nwant\n%s", got, x.want)
			}
		})
	}
}
