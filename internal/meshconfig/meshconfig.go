// Package meshconfig owns the reading of Istio's MeshConfig: text goes in, and the message comes out with what is set of it. It does not know
// what proxies make of a setting, nor where the text stands.
package meshconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshapi "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

// ObjectName is the name of the ConfigMap of the mesh's settings in the root namespace, and DataKey the key of its data that holds them.
const (
	ObjectName = "istio"
	DataKey    = "mesh"
)

// Honoured are the fields that this mesh's own waypoints go by, by their JSON names.
var Honoured = []string{"accessLogEncoding", "accessLogFile", "accessLogFormat", "connectTimeout", "defaultHttpRetryPolicy", "pathNormalization", "trustDomainAliases"}

// DecidingAccess are the fields that decide who may connect or call, and that no proxy of this mesh goes by.
var DecidingAccess = []string{"caCertificates", "configSources", "discoverySelectors", "extensionProviders", "meshMTLS", "outboundTrafficPolicy", "serviceEntryVisibility", "tlsDefaults"}

// Repeated are the conditions of defaultHttpRetryPolicy.retryOn on which waypoints repeat a request. The others mean answers of endpoints,
// which are final (docs/design/which-requests-are-repeated.md).
var Repeated = []string{"connect-failure", "refused-stream", "reset", "reset-before-request"}

// Config is a MeshConfig.
type Config struct {
	Message *meshapi.MeshConfig
	// Set are the fields that are given, and Unknown those of them that this program does not know; both by their JSON names and in order.
	Set, Unknown []string
}

// Parse reads YAML. A field that is not known comes of a later Istio and is passed over, a value that its field cannot have is an error.
func Parse(text string) (*Config, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, errors.New("it is no map of fields; write one field a line, such as accessLogFile: /dev/stdout")
	}
	out := &Config{Message: &meshapi.MeshConfig{}}
	known := out.Message.ProtoReflect().Descriptor().Fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == nil {
			continue
		}
		field := known.ByJSONName(name)
		if field == nil {
			field = known.ByTextName(name)
		}
		if field == nil {
			out.Set, out.Unknown = append(out.Set, name), append(out.Unknown, name)
			continue
		}
		if slices.Contains(out.Set, field.JSONName()) {
			return nil, fmt.Errorf("%s is given twice, as %s as well; remove one of the two", field.JSONName(), field.TextName())
		}
		out.Set = append(out.Set, field.JSONName())
		one, err := json.Marshal(map[string]any{name: knownOf(field, fields[name])})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		value := &meshapi.MeshConfig{}
		if err := protojson.Unmarshal(one, value); err != nil {
			return nil, fmt.Errorf("%s: %s; correct the value", name, plain(err))
		}
		proto.Merge(out.Message, value)
	}
	slices.Sort(out.Set)
	slices.Sort(out.Unknown)
	return out, nil
}

// knownOf is a value without the fields of messages within that are not known. The decoder's own way to pass over them would pass over words that
// are none of an enumeration's as well.
func knownOf(field protoreflect.FieldDescriptor, value any) any {
	if entries, ok := value.(map[string]any); ok && field.IsMap() {
		out := make(map[string]any, len(entries))
		for key, one := range entries {
			out[key] = knownOf(field.MapValue(), one)
		}
		return out
	}
	message := field.Message()
	if message == nil || field.IsMap() || message.ParentFile().Package() == "google.protobuf" {
		return value // those have a form of their own
	}
	switch value := value.(type) {
	case []any:
		out := make([]any, 0, len(value))
		for _, one := range value {
			out = append(out, knownFields(message, one))
		}
		return out
	default:
		return knownFields(message, value)
	}
}

func knownFields(message protoreflect.MessageDescriptor, value any) any {
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := make(map[string]any, len(fields))
	for name, one := range fields {
		field := message.Fields().ByJSONName(name)
		if field == nil {
			field = message.Fields().ByTextName(name)
		}
		if field != nil {
			out[name] = knownOf(field, one)
		}
	}
	return out
}

// plain is an error of protojson without its prefix, the space behind which differs from build to build on purpose, and without the place in
// text that nobody wrote.
func plain(err error) string {
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
	if rest, found := strings.CutPrefix(text, "(line "); found {
		if _, after, ok := strings.Cut(rest, "): "); ok {
			text = after
		}
	}
	return text
}

// Unserved lists the fields that are set and that no proxy of this mesh goes by. What the control plane knows by flags is not among
// them where the flag says the same.
func (c *Config) Unserved(trustDomain, rootNamespace string) (fields []string) {
	for _, name := range c.Set {
		switch {
		case slices.Contains(Honoured, name):
		case name == "trustDomain" && c.Message.GetTrustDomain() == trustDomain, name == "rootNamespace" && c.Message.GetRootNamespace() == rootNamespace:
		case name == "outboundTrafficPolicy" && c.Message.GetOutboundTrafficPolicy().GetMode() != meshapi.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY:
			// Every destination is allowed, as it asks for. What else it may ask for is among the parts.
		default:
			fields = append(fields, name)
		}
	}
	return append(fields, c.partlyUnserved()...)
}

// partlyUnserved are parts of fields that are honoured otherwise.
func (c *Config) partlyUnserved() (parts []string) {
	parts = c.unservedLog()
	if r := c.Message.GetDefaultHttpRetryPolicy(); r != nil {
		for _, part := range []struct {
			name string
			set  bool
		}{{"backoff", r.GetBackoff() != nil}, {"retryIgnorePreviousHosts", r.GetRetryIgnorePreviousHosts() != nil}, {"retryRemoteLocalities", r.GetRetryRemoteLocalities() != nil}} {
			if part.set {
				parts = append(parts, "defaultHttpRetryPolicy."+part.name)
			}
		}
	}
	for on := range strings.SplitSeq(c.Message.GetDefaultHttpRetryPolicy().GetRetryOn(), ",") {
		if on = strings.TrimSpace(on); on != "" && !slices.Contains(Repeated, on) {
			parts = append(parts, "defaultHttpRetryPolicy.retryOn "+on)
		}
	}
	o := c.Message.GetOutboundTrafficPolicy()
	if o.GetMode() == meshapi.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		parts = append(parts, "outboundTrafficPolicy.mode ALLOW_ANY_DYNAMIC_DNS")
	}
	if o.GetTls() != nil {
		parts = append(parts, "outboundTrafficPolicy.tls")
	}
	return parts
}
