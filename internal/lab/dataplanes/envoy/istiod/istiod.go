// Package istiod makes the configuration that an istiod gives the Envoy of a waypoint, for a stock Envoy without a control plane. All listeners,
// filters and clusters come from a dump of a named istiod. What is changed of them is in Lacking and in the edits below, and nowhere else.
package istiod

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy/rbac"
)

// dumped is what an istiod of Commit sent to a waypoint, with the objects and settings that it was given. Its service has a port of each
// protocol, and two policies.
//
//go:embed dump.json
var dumped []byte

// Commit is the commit of istio/istio whose istiod made the dump.
const Commit = "86c9f01fd735fb01d8192f5bcaf0d424afb7f14c"

// lacking are the types of the filters that a stock Envoy lacks, and that are removed. Istio's build of Envoy has them.
var lacking = map[string]bool{
	"type.googleapis.com/io.istio.http.peer_metadata.Config":                 true,
	"type.googleapis.com/stats.PluginConfig":                                 true,
	"type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange": true,
}

// unused are the listeners, and the clusters of the same names, that lead to other networks. No endpoint of the lab is in one, and a filter of
// the first is another that a stock Envoy lacks.
var unused = []string{"inner_connect_originate", "outer_connect_originate"}

// Lacking lists what is removed of the dump: types of filters, and listeners. With one listener more is removed.
func Lacking(oneListener bool) []string {
	var list []string
	for name := range lacking {
		list = append(list, strings.TrimPrefix(name, "type.googleapis.com/"))
	}
	list = append(list, unused...)
	if oneListener {
		list = append(list, chained...)
	}
	slices.Sort(list)
	return list
}

// Carried matches the counters of requests and of connections that were relayed unread.
const Carried = `^(http\.inbound_.*\.downstream_rq_completed|tcp\.inbound-vip.*\.downstream_cx_total)$`

// Config is what the Envoy has to know.
type Config struct {
	// Name is "namespace/name" of the waypoint.
	Name string
	// Dir is the absolute directory in which the Envoy finds its keys, by the file names of package envoy.
	Dir string
	// AdminPort is where the Envoy answers about itself, on its loopback address.
	AdminPort uint16
	// OneListener has the Envoy serve requests behind the node's proxy, which does the tunnels; see onelistener.go.
	OneListener bool
	Services    []Service
}

// Arguments is the command line, without the program, of an Envoy whose configuration is in a file: Istio's, and the number of workers.
func Arguments(config string, workers int) []string {
	return []string{
		"--config-path", config, "--concurrency", strconv.Itoa(workers), "--disable-hot-restart", "--file-flush-interval-msec", "1000",
		"--drain-time-s", "45", "--drain-strategy", "immediate", "--log-level", "warning",
	}
}

// object is a JSON object; its keys are written in order, so that equal configurations are equal bytes.
type object = map[string]any

// Bootstrap returns the configuration as JSON.
func Bootstrap(c Config) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("configure the waypoint %q: %w", c.Name, err)
	}
	t, err := read(dumped)
	if err != nil {
		return nil, fmt.Errorf("configure the waypoint %q: %w", c.Name, err)
	}
	bootstrap := object{
		"node":  object{"id": c.Name, "cluster": c.namespace()},
		"admin": object{"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": c.AdminPort}}},
	}
	if c.OneListener {
		bootstrap["static_resources"] = c.oneListener(t)
	} else {
		resources := object{"listeners": c.listeners(t), "clusters": c.clusters(t)}
		c.files(resources)
		bootstrap["static_resources"] = resources
		// Without it there are no listeners inside the process.
		bootstrap["bootstrap_extensions"] = []any{object{
			"name":         "envoy.bootstrap.internal_listener",
			"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"},
		}}
	}
	text, err := json.MarshalIndent(bootstrap, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("configure the waypoint %q: %w", c.Name, err)
	}
	return append(text, '\n'), nil
}

func (c Config) namespace() string {
	namespace, _, _ := strings.Cut(c.Name, "/")
	return namespace
}

func (c Config) check() error {
	if namespace, name, _ := strings.Cut(c.Name, "/"); namespace == "" || name == "" {
		return fmt.Errorf("name: write namespace/name")
	}
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("directory %q: give an absolute path", c.Dir)
	}
	if len(c.Services) == 0 {
		return fmt.Errorf("there is no service")
	}
	for i, s := range c.Services {
		switch {
		case s.Name == "" || s.Namespace == "" || !s.Address.IsValid() || len(s.Ports) == 0:
			return fmt.Errorf("service %q: give it a namespace, a name, an address and a port", s.Name)
		case slices.ContainsFunc(c.Services[:i], func(o Service) bool { return o.host() == s.host() || o.Address == s.Address }):
			return fmt.Errorf("service %s: its name or address is taken by another service", s.host())
		}
		for j, p := range s.Ports {
			switch {
			case p.Number == 0 || slices.ContainsFunc(s.Ports[:j], func(o Port) bool { return o.Number == p.Number }):
				return fmt.Errorf("service %s: port %d is none, or stands twice", s.host(), p.Number)
			case !slices.Contains([]Protocol{HTTP, GRPC, TCP}, p.Protocol):
				return fmt.Errorf("service %s: port %d: protocol %q: use %s, %s or %s", s.host(), p.Number, p.Protocol, HTTP, GRPC, TCP)
			case p.Protocol == TCP && len(s.Policies) > 0:
				return fmt.Errorf("service %s: policies of a service with a TCP port are not made here: give the port a service of its own", s.host())
			}
		}
	}
	return nil
}

// template is the dump, and what of it stands for a port of each protocol.
type template struct {
	listeners, clusters map[string]object
	endpoint            object
}

// sample are the ports of the dump's service by protocol, its host, and the names of its chains and clusters.
var sample = map[Protocol]string{HTTP: "8080", GRPC: "8082", TCP: "9090"}

const sampleHost = "echo.default.svc.cluster.local"

// chainName is the name of a port's filter chain, and of its cluster.
func chainName(protocol Protocol, host, port string) string {
	kind := "http"
	if protocol == TCP {
		kind = "tcp"
	}
	return "inbound-vip|" + port + "|" + kind + "|" + host
}

func read(text []byte) (template, error) {
	var d struct {
		Listeners, Clusters []object
		Endpoints           []struct {
			Endpoints []struct {
				LbEndpoints []object `json:"lb_endpoints"`
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // numbers stay as they are written
	if err := decoder.Decode(&d); err != nil {
		return template{}, fmt.Errorf("read the dump: %w", err)
	}
	t := template{listeners: map[string]object{}, clusters: map[string]object{}}
	for _, l := range d.Listeners {
		t.listeners[l["name"].(string)] = stocked(l).(object)
	}
	for _, c := range d.Clusters {
		t.clusters[c["name"].(string)] = c
	}
	t.endpoint = d.Endpoints[0].Endpoints[0].LbEndpoints[0]
	return t, nil
}

// stocked is a part of the dump as a stock Envoy can have it: without the filters that it lacks and without those of policies, which are made
// anew, and with a factory of its own in place of Istio's for the same kind of filter state.
func stocked(part any) any {
	switch v := part.(type) {
	case object:
		made := object{}
		for key, value := range v {
			if value == "istio.hashable_string" {
				value = "envoy.hashable_string"
			}
			made[key] = stocked(value)
		}
		return made
	case []any:
		made := []any{}
		for _, value := range v {
			if o, is := value.(object); !is || !dropped(o) {
				made = append(made, stocked(value))
			}
		}
		return made
	}
	return part
}

// dropped says whether a filter does not stay.
func dropped(filter object) bool {
	config, is := filter["typed_config"].(object)
	if !is {
		return false
	}
	kind, _ := config["@type"].(string)
	if inner, is := config["type_url"].(string); is { // a type that the receiver knows by its name alone
		kind = inner
	}
	return lacking[kind] || strings.HasSuffix(kind, ".rbac.v3.RBAC")
}

// listeners are those of the dump.
func (c Config) listeners(t template) []any {
	return []any{t.listeners["connect_terminate"], c.main(t), t.listeners["connect_originate"]}
}

// main is the dump's listener that serves requests, with a chain for each port of the services.
func (c Config) main(t template) object {
	main := t.listeners["main_internal"]
	samples := map[string]any{}
	var chains []any
	for _, chain := range main["filter_chains"].([]any) {
		if name := chain.(object)["name"].(string); strings.HasPrefix(name, "direct-") {
			chains = append(chains, chain)
		} else {
			samples[name] = chain
		}
	}
	match := main["filter_chain_matcher"].(object)["matcher_tree"].(object)["custom_match"].(object)["typed_config"].(object)
	range0 := match["range_matchers"].([]any)[0]
	var ranges []any
	for _, s := range c.Services {
		actions := object{}
		for _, p := range s.Ports {
			chain := s.fitted(samples[chainName(p.Protocol, sampleHost, sample[p.Protocol])], p).(object)
			s.admit(chain)
			chains = append(chains, chain)
			name := chainName(p.Protocol, s.host(), p.text())
			actions[p.text()] = object{"action": object{"name": name, "typed_config": object{"@type": "type.googleapis.com/google.protobuf.StringValue", "value": name}}}
		}
		one := replaced(range0, strings.NewReplacer()).(object)
		one["ranges"] = []any{object{"address_prefix": s.Address.String(), "prefix_len": s.Address.BitLen()}}
		one["on_match"].(object)["matcher"].(object)["matcher_tree"].(object)["exact_match_map"] = object{"map": actions}
		ranges = append(ranges, one)
	}
	match["range_matchers"], main["filter_chains"] = ranges, chains
	c.inspect(main)
	return main
}

// inspect has connections looked at byte by byte on those ports alone whose number is HTTP to one service and TCP to another.
func (c Config) inspect(main object) {
	kinds := map[uint16]map[bool]bool{}
	for _, s := range c.Services {
		for _, p := range s.Ports {
			if kinds[p.Number] == nil {
				kinds[p.Number] = map[bool]bool{}
			}
			kinds[p.Number][p.Protocol == TCP] = true
		}
	}
	var known []int
	for number, k := range kinds {
		if len(k) == 1 {
			known = append(known, int(number))
		}
	}
	slices.Sort(known)
	var rules []any
	for _, number := range known {
		rules = append(rules, object{"destination_port_range": object{"start": number, "end": number + 1}})
	}
	for _, f := range main["listener_filters"].([]any) {
		filter := f.(object)
		if filter["name"] != "envoy.filters.listener.http_inspector" {
			continue
		}
		switch len(rules) {
		case 0:
			delete(filter, "filter_disabled")
		case 1:
			filter["filter_disabled"] = rules[0]
		default:
			filter["filter_disabled"] = object{"or_match": object{"rules": rules}}
		}
	}
}

func (p Port) text() string { return strconv.Itoa(int(p.Number)) }

// fitted is a part of the dump that is of one port, for another port and service.
func (s Service) fitted(part any, p Port) any {
	return replaced(part, strings.NewReplacer(sampleHost, s.host(), sample[p.Protocol], p.text()))
}

// replaced is a copy of a part of the dump with other texts.
func replaced(part any, texts *strings.Replacer) any {
	switch v := part.(type) {
	case object:
		made := object{}
		for key, value := range v {
			made[key] = replaced(value, texts)
		}
		return made
	case []any:
		made := []any{}
		for _, value := range v {
			made = append(made, replaced(value, texts))
		}
		return made
	case string:
		return texts.Replace(v)
	}
	return part
}

// admit puts the filters of the service's policies before all others of a chain, in istiod's order.
func (s Service) admit(chain object) {
	manager := chain["filters"].([]any)[0].(object)["typed_config"].(object)
	filters, is := manager["http_filters"].([]any)
	if !is {
		return // no policy is for a chain that relays bytes, see check
	}
	var first []any
	for _, action := range []securityapi.AuthorizationPolicy_Action{securityapi.AuthorizationPolicy_AUDIT, securityapi.AuthorizationPolicy_DENY, securityapi.AuthorizationPolicy_ALLOW} {
		config := rbac.Filter(s.Policies, action, []string{trustDomain})
		if config == nil {
			continue
		}
		config["@type"] = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
		config["shadow_rules_stat_prefix"] = "istio_dry_run_allow_"
		first = append(first, object{"name": "envoy.filters.http.rbac", "typed_config": config})
	}
	manager["http_filters"] = append(first, filters...)
}

// trustDomain is that of the dump, and of the lab's meshes.
const trustDomain = "cluster.local"

// clusters are those of the dump, with one for each port of the services.
func (c Config) clusters(t template) []any {
	list := []any{t.clusters["main_internal"], t.clusters["encap"]}
	return append(append(list, c.served(t)...), t.clusters["connect_originate"])
}

// served are the clusters of the services' ports. Endpoints are part of them instead of a resource of their own.
func (c Config) served(t template) (list []any) {
	for _, s := range c.Services {
		for _, p := range s.Ports {
			made := s.fitted(t.clusters[chainName(p.Protocol, sampleHost, sample[p.Protocol])], p).(object)
			made["metadata"].(object)["filter_metadata"].(object)["istio"].(object)["services"] = []any{object{"host": s.host(), "name": s.Name, "namespace": s.Namespace}}
			endpoints := []any{}
			for _, e := range p.Endpoints {
				endpoints = append(endpoints, e.of(t.endpoint))
			}
			delete(made, "eds_cluster_config")
			made["type"] = "STATIC"
			made["load_assignment"] = object{"cluster_name": made["name"], "endpoints": []any{object{"lb_endpoints": endpoints}}}
			list = append(list, made)
		}
	}
	return list
}

// of is the dump's endpoint with another address: a tunnel through connect_originate to it.
func (e Endpoint) of(sampled object) any {
	made := replaced(sampled, strings.NewReplacer()).(object)
	made["endpoint"].(object)["address"].(object)["envoy_internal_address"].(object)["endpoint_id"] = e.Address.String()
	made["metadata"].(object)["filter_metadata"] = object{
		"envoy.filters.listener.original_dst": object{"local": e.Address.String()},
		"istio":                               object{"workload": e.Workload},
	}
	return made
}

// groups are the key exchanges in the order in which Lateen's proxies prefer them.
var groups = []any{"X25519MLKEM768", "X25519", "P-256", "P-384"}

// files has every TLS context read its keys from files, where istiod names an agent's secrets, and prefer Lateen's key exchanges.
func (c Config) files(part any) {
	switch v := part.(type) {
	case object:
		if tls, is := v["common_tls_context"].(object); is {
			name := func(file string) object { return object{"filename": filepath.Join(c.Dir, file)} }
			delete(tls, "tls_certificate_sds_secret_configs")
			tls["tls_certificates"] = []any{object{"certificate_chain": name(envoy.CertificateFile), "private_key": name(envoy.KeyFile)}}
			validation := tls["combined_validation_context"].(object)["default_validation_context"].(object)
			validation["trusted_ca"] = name(envoy.RootsFile)
			delete(tls, "combined_validation_context")
			tls["validation_context"] = validation
			tls["tls_params"].(object)["ecdh_curves"] = groups
		}
		for _, value := range v {
			c.files(value)
		}
	case []any:
		for _, value := range v {
			c.files(value)
		}
	}
}
