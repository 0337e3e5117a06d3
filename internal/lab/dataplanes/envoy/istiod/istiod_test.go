package istiod

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
)

var update = flag.Bool("update", false, "write the golden file anew")

// policy reads the spec of a policy of namespace default.
func policy(t *testing.T, name, spec string) *securityv1.AuthorizationPolicy {
	t.Helper()
	p := &securityv1.AuthorizationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Spec.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return p
}

// dumpsPolicies are those that the istiod of the dump was given.
func dumpsPolicies(t *testing.T) []*securityv1.AuthorizationPolicy {
	return []*securityv1.AuthorizationPolicy{
		policy(t, "admit", `{action: ALLOW, rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/client]}}], to: [{operation: {methods: [GET], paths: ["/*"]}}]}]}`),
		policy(t, "refuse", `{action: DENY, rules: [{to: [{operation: {paths: ["/private/*"]}}]}]}`),
	}
}

func endpoint(pod, address string) Endpoint {
	return Endpoint{Address: netip.MustParseAddrPort(address), Workload: pod + ";default;echo;;Kubernetes"}
}

// dumpsWorld is the service of the dump, without its TCP port.
func dumpsWorld(t *testing.T, dir string) Config {
	return Config{Name: "waypoints/waypoint", Dir: dir, AdminPort: 15000, Services: []Service{{
		Namespace: "default", Name: "echo", Address: netip.MustParseAddr("10.96.0.7"), Policies: dumpsPolicies(t),
		Ports: []Port{
			{Protocol: HTTP, Number: 8080, Endpoints: []Endpoint{endpoint("echo-1", "10.244.2.7:8080")}},
			{Protocol: GRPC, Number: 8082, Endpoints: []Endpoint{endpoint("echo-1", "10.244.2.7:8080")}},
		},
	}}}
}

// world is two services, of which one relays bytes.
func world(t *testing.T, dir string) Config {
	c := dumpsWorld(t, dir)
	echo := &c.Services[0]
	echo.Ports[0].Number = 80
	echo.Ports[0].Endpoints = append(echo.Ports[0].Endpoints, endpoint("echo-2", "10.244.2.8:8080"))
	c.Services = append(c.Services, Service{
		Namespace: "default", Name: "store", Address: netip.MustParseAddr("10.96.0.9"), Ports: []Port{{Protocol: TCP, Number: 9090, Endpoints: []Endpoint{endpoint("store-1", "10.244.2.9:90")}}},
	})
	return c
}

func TestTheConfigurationIsTheGoldenOne(t *testing.T) {
	for name, one := range map[string]bool{"waypoint.json": false, "one-listener.json": true} {
		c := world(t, "/run/keys")
		c.OneListener = one
		got, err := Bootstrap(c)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the configuration differs from %s; go test -update writes it anew", golden)
		}
	}
}

// stock is an Envoy that is there already; tests do not download one.
func stock(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("ENVOY"); path != "" {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("find the cache that hack/envoy.sh keeps an Envoy in: %v", err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "lateen", "envoy-*", "envoy"))
	if len(found) == 0 {
		t.Skip("NOT TESTED: whether a stock Envoy accepts the configuration. There is none; hack/envoy.sh downloads one, as `make test` does before its Go tests")
	}
	return found[len(found)-1]
}

// A stock Envoy knows each filter that is left, and each field of it.
func TestAStockEnvoyAcceptsTheConfiguration(t *testing.T) {
	program, dir := stock(t), t.TempDir()
	authority, err := envoy.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.WriteKeys(dir, "spiffe://cluster.local/ns/waypoints/sa/waypoint", os.Getuid()); err != nil {
		t.Fatal(err)
	}
	for _, one := range []bool{false, true} {
		c := world(t, dir)
		c.OneListener = one
		config, err := Bootstrap(c)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "envoy.json")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		arguments := append([]string{"--mode", "validate"}, Arguments(file, 1)...)
		if said, err := exec.Command(program, arguments...).CombinedOutput(); err != nil || !strings.Contains(string(said), "OK") {
			t.Errorf("one listener %v: %v: %s", one, err, said)
		}
	}
}

// part finds the element of a list that has a name.
func part(t *testing.T, list any, name string) object {
	t.Helper()
	for _, e := range list.([]any) {
		if e.(object)["name"] == name {
			return e.(object)
		}
	}
	t.Fatalf("there is no %q", name)
	return nil
}

func decode(t *testing.T, text []byte) (v object) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// expected is a part of the dump with the edits that the package describes: filters that a stock Envoy lacks, its factory, and the keys.
func expected(v any) any {
	switch v := v.(type) {
	case object:
		made := object{}
		for key, value := range v {
			switch {
			case value == "istio.hashable_string":
				made[key] = "envoy.hashable_string"
			case key == "common_tls_context":
				made[key] = "of files" // compared by TestKeysComeFromFiles
			default:
				made[key] = expected(value)
			}
		}
		if rules, is := made["rules"].(object); is && made["shadow_rules_stat_prefix"] != nil && rules["action"] == nil {
			rules["action"] = "ALLOW" // the message's default, which istiod leaves out
		}
		return made
	case []any:
		made := []any{}
		for _, value := range v {
			filter, _ := value.(object)
			name, _ := filter["name"].(string)
			if filter["typed_config"] == nil || !strings.HasPrefix(name, "istio.") && !strings.HasSuffix(name, "_peer_metadata") {
				made = append(made, expected(value))
			}
		}
		return made
	}
	return v
}

// Whatever istiod sends to a waypoint is there as it sends it, filters of policies too, except for what the package says it changes.
func TestListenersAndClustersAreThoseOfTheDump(t *testing.T) {
	text, err := Bootstrap(dumpsWorld(t, "/run/keys"))
	if err != nil {
		t.Fatal(err)
	}
	made, dump := decode(t, text)["static_resources"].(object), decode(t, dumped)
	compare := func(what string, got, want any) {
		t.Helper()
		if got, want = expected(got), expected(want); !reflect.DeepEqual(got, want) {
			a, _ := json.MarshalIndent(got, "", " ")
			b, _ := json.MarshalIndent(want, "", " ")
			t.Errorf("%s:\n%s\nwant\n%s", what, a, b)
		}
	}
	var names []string
	for _, l := range made["listeners"].([]any) {
		names = append(names, l.(object)["name"].(string))
	}
	if !slices.Equal(names, []string{"connect_terminate", "main_internal", "connect_originate"}) {
		t.Errorf("listeners %v", names)
	}
	for _, name := range []string{"connect_terminate", "connect_originate"} {
		compare(name, part(t, made["listeners"], name), part(t, dump["listeners"], name))
	}
	main, dumpsMain := part(t, made["listeners"], "main_internal"), part(t, dump["listeners"], "main_internal")
	for _, name := range []string{"inbound-vip|8080|http|echo.default.svc.cluster.local", "inbound-vip|8082|http|echo.default.svc.cluster.local", "direct-tcp", "direct-http"} {
		compare(name, part(t, main["filter_chains"], name), part(t, dumpsMain["filter_chains"], name))
		if strings.HasPrefix(name, "direct") {
			continue
		}
		got, want := part(t, made["clusters"], name), part(t, dump["clusters"], name)
		for _, e := range dump["endpoints"].([]any) { // a resource of its own there
			if e.(object)["cluster_name"] == name {
				endpoints := e.(object)["endpoints"].([]any)[0].(object)
				delete(endpoints, "load_balancing_weight")
				delete(endpoints, "locality")
				want["load_assignment"] = e
			}
		}
		delete(want, "eds_cluster_config")
		want["type"] = "STATIC"
		compare("cluster "+name, got, want)
	}
	for _, name := range []string{"main_internal", "encap", "connect_originate"} {
		compare("cluster "+name, part(t, made["clusters"], name), part(t, dump["clusters"], name))
	}
	// The dump has the TCP port besides.
	actions := func(main object) object {
		match := main["filter_chain_matcher"].(object)["matcher_tree"].(object)["custom_match"].(object)["typed_config"].(object)["range_matchers"].([]any)[0].(object)
		return match["on_match"].(object)["matcher"].(object)["matcher_tree"].(object)["exact_match_map"].(object)["map"].(object)
	}
	delete(actions(dumpsMain), "9090")
	disabled := part(t, dumpsMain["listener_filters"], "envoy.filters.listener.http_inspector")["filter_disabled"].(object)["or_match"].(object)
	disabled["rules"] = disabled["rules"].([]any)[:2]
	delete(main, "filter_chains")
	delete(dumpsMain, "filter_chains")
	compare("main_internal", main, dumpsMain)
}

func TestRelayedBytesHaveTheDumpsChainWithoutPolicies(t *testing.T) {
	text, err := Bootstrap(world(t, "/run/keys"))
	if err != nil {
		t.Fatal(err)
	}
	chain := part(t, part(t, decode(t, text)["static_resources"].(object)["listeners"], "main_internal")["filter_chains"], "inbound-vip|9090|tcp|store.default.svc.cluster.local")
	filters := chain["filters"].([]any)
	if relay := filters[0].(object); len(filters) != 1 || relay["name"] != "envoy.filters.network.tcp_proxy" || relay["typed_config"].(object)["cluster"] != chain["name"] {
		t.Errorf("got %v", filters)
	}
}

func TestKeysComeFromFiles(t *testing.T) {
	text, err := Bootstrap(world(t, "/run/keys"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"sds", `"ads"`, "combined_validation_context", "istio.hashable_string", "istio.stats", "istio.metadata_exchange"} {
		if strings.Contains(string(text), word) {
			t.Errorf("it still has %s", word)
		}
	}
	resources := decode(t, text)["static_resources"].(object)
	server := part(t, resources["listeners"], "connect_terminate")["filter_chains"].([]any)[0].(object)["transport_socket"].(object)["typed_config"].(object)
	client := part(t, resources["clusters"], "connect_originate")["transport_socket"].(object)["typed_config"].(object)
	if server["require_client_certificate"] != true {
		t.Error("a client needs no certificate")
	}
	for name, context := range map[string]any{"server": server["common_tls_context"], "client": client["common_tls_context"]} {
		tls := context.(object)
		if sans := tls["validation_context"].(object)["match_typed_subject_alt_names"].([]any); len(sans) == 0 || sans[0].(object)["matcher"].(object)["prefix"] != "spiffe://cluster.local/" {
			t.Errorf("%s: peers are %v", name, sans)
		}
		if roots := tls["validation_context"].(object)["trusted_ca"].(object)["filename"]; roots != "/run/keys/"+envoy.RootsFile {
			t.Errorf("%s: roots from %v", name, roots)
		}
		if curves := tls["tls_params"].(object)["ecdh_curves"].([]any); curves[0] != "X25519MLKEM768" {
			t.Errorf("%s: key exchanges %v", name, curves)
		}
		if key := tls["tls_certificates"].([]any)[0].(object)["private_key"].(object)["filename"]; key != "/run/keys/"+envoy.KeyFile {
			t.Errorf("%s: key from %v", name, key)
		}
	}
}

func TestPortsOfOneNumberAreToldApartByTheirBytes(t *testing.T) {
	disabled := func(c Config) any {
		text, err := Bootstrap(c)
		if err != nil {
			t.Fatal(err)
		}
		return part(t, part(t, decode(t, text)["static_resources"].(object)["listeners"], "main_internal")["listener_filters"], "envoy.filters.listener.http_inspector")["filter_disabled"]
	}
	ports := func(at ...float64) any {
		var rules []any
		for _, n := range at {
			rules = append(rules, object{"destination_port_range": object{"start": n, "end": n + 1}})
		}
		if len(rules) == 1 {
			return rules[0]
		}
		return object{"or_match": object{"rules": rules}}
	}
	c := world(t, "/run/keys")
	if got := disabled(c); !reflect.DeepEqual(got, ports(80, 8082, 9090)) {
		t.Errorf("three ports: %v", got)
	}
	c.Services[1].Ports[0].Number = 80 // HTTP to the other service
	if got := disabled(c); !reflect.DeepEqual(got, ports(8082)) {
		t.Errorf("one port that is both: %v", got)
	}
	c.Services[0].Ports = c.Services[0].Ports[:1]
	if got := disabled(c); got != nil {
		t.Errorf("every port is both: %v", got)
	}
}

func TestWhatIsRemovedIsListed(t *testing.T) {
	want := []string{
		"envoy.tcp.metadataexchange.config.MetadataExchange", "inner_connect_originate", "io.istio.http.peer_metadata.Config", "outer_connect_originate", "stats.PluginConfig",
	}
	if got := Lacking(false); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	more := Lacking(true)
	for _, name := range append(want, "connect_terminate", "connect_originate", "tls") {
		if !slices.Contains(more, name) {
			t.Errorf("with one listener %q is not listed: %q", name, more)
		}
	}
	if commit := decode(t, dumped)["istiod"]; commit != Commit {
		t.Errorf("the dump is of %v", commit)
	}
}

func TestAWorldThatCannotBeConfiguredIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"write namespace/name":                  func(c *Config) { c.Name = "waypoint" },
		"give an absolute path":                 func(c *Config) { c.Dir = "keys" },
		"there is no service":                   func(c *Config) { c.Services = nil },
		"give it a namespace":                   func(c *Config) { c.Services[0].Ports = nil },
		"is taken by another service":           func(c *Config) { c.Services[1].Address = c.Services[0].Address },
		"port 80 is none, or stands twice":      func(c *Config) { c.Services[0].Ports[1].Number = 80 },
		`protocol "udp": use http, grpc or tcp`: func(c *Config) { c.Services[0].Ports[0].Protocol = "udp" },
		"give the port a service of its own":    func(c *Config) { c.Services[0].Ports[0].Protocol = TCP },
	} {
		c := world(t, "/run/keys")
		change(&c)
		if _, err := Bootstrap(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
