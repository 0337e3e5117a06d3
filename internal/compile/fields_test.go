package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	networkingapi "istio.io/api/networking/v1alpha3"
	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// The fate of a field of those of Istio's kinds that decide who may connect to whom, and who sees what.
const (
	judged   = "node proxies are told of it"
	named    = "node proxies cannot judge it: the policy's condition names it"
	waypoint = "a policy with it is for waypoints, and its condition says so"
	refused  = "it goes with an action that node proxies do not have, as the condition says"
	tokenAt  = "waypoints look for tokens by it, and refuse requests with one"
	tokenOf  = "it says what of a token is good, or passed on; the condition says that no token is verified yet"
	nothing  = "it says nothing to a mesh whose workloads prove who they are"
)

// fieldsOf is what becomes of each field of a kind's spec, by its path. A field of a version of istio.io/api that is not here fails the tests below:
// handle it, or say that it is not supported, in the object's condition and here.
var fieldsOf = map[string]map[string]string{
	"AuthorizationPolicy": {
		"action": judged, "provider": refused, "provider.name": refused,
		"selector": judged, "selector.matchLabels": judged,
		"targetRef": waypoint, "targetRef.group": waypoint, "targetRef.kind": waypoint, "targetRef.name": waypoint, "targetRef.namespace": waypoint,
		"targetRefs": waypoint, "targetRefs.group": waypoint, "targetRefs.kind": waypoint, "targetRefs.name": waypoint, "targetRefs.namespace": waypoint,
		"rules": judged, "rules.from": judged, "rules.from.source": judged,
		"rules.from.source.ipBlocks": judged, "rules.from.source.notIpBlocks": judged,
		"rules.from.source.namespaces": judged, "rules.from.source.notNamespaces": judged,
		"rules.from.source.principals": judged, "rules.from.source.notPrincipals": judged,
		"rules.from.source.serviceAccounts": judged, "rules.from.source.notServiceAccounts": judged,
		"rules.from.source.trustDomains": judged, "rules.from.source.notTrustDomains": judged,
		"rules.from.source.remoteIpBlocks": named, "rules.from.source.notRemoteIpBlocks": named,
		"rules.from.source.requestPrincipals": named, "rules.from.source.notRequestPrincipals": named,
		"rules.to": judged, "rules.to.operation": judged,
		"rules.to.operation.ports": judged, "rules.to.operation.notPorts": judged,
		"rules.to.operation.hosts": named, "rules.to.operation.notHosts": named,
		"rules.to.operation.methods": named, "rules.to.operation.notMethods": named,
		"rules.to.operation.paths": named, "rules.to.operation.notPaths": named,
		"rules.when": judged, "rules.when.key": judged, "rules.when.values": judged, "rules.when.notValues": judged,
	},
	"RequestAuthentication": {
		"targetRef": waypoint, "targetRef.group": waypoint, "targetRef.kind": waypoint, "targetRef.name": waypoint, "targetRef.namespace": waypoint,
		"targetRefs": waypoint, "targetRefs.group": waypoint, "targetRefs.kind": waypoint, "targetRefs.name": waypoint, "targetRefs.namespace": waypoint,
		"selector": refused, "selector.matchLabels": refused,
		"jwtRules": tokenAt, "jwtRules.issuer": tokenAt, "jwtRules.fromHeaders": tokenAt, "jwtRules.fromHeaders.name": tokenAt, "jwtRules.fromHeaders.prefix": tokenAt,
		"jwtRules.fromParams": tokenAt, "jwtRules.fromCookies": tokenAt,
		"jwtRules.audiences": tokenOf, "jwtRules.jwks": tokenOf, "jwtRules.jwksUri": tokenOf, "jwtRules.timeout": tokenOf, "jwtRules.forwardOriginalToken": tokenOf,
		"jwtRules.outputPayloadToHeader": tokenOf, "jwtRules.outputClaimToHeaders": tokenOf, "jwtRules.outputClaimToHeaders.header": tokenOf,
		"jwtRules.outputClaimToHeaders.claim": tokenOf, "jwtRules.spaceDelimitedClaims": tokenOf,
	},
	"PeerAuthentication": {
		"selector": judged, "selector.matchLabels": judged, "mtls": judged, "mtls.mode": judged, "portLevelMtls": judged, "portLevelMtls.mode": judged,
	},
	"ServiceEntry": {
		"hosts": judged, "addresses": judged, "resolution": judged, "exportTo": judged, "subjectAltNames": judged, "location": nothing,
		"ports": judged, "ports.number": judged, "ports.protocol": judged, "ports.name": judged, "ports.targetPort": judged,
		"workloadSelector": judged, "workloadSelector.labels": judged,
		"endpoints": judged, "endpoints.address": judged, "endpoints.ports": judged, "endpoints.labels": judged, "endpoints.network": judged,
		"endpoints.locality": judged, "endpoints.weight": judged, "endpoints.serviceAccount": judged,
	},
	"WorkloadEntry": {
		"address": judged, "ports": judged, "labels": judged, "network": judged, "locality": judged, "weight": judged, "serviceAccount": judged,
	},
}

var specs = map[string]protoreflect.MessageDescriptor{
	"AuthorizationPolicy":   (&securityapi.AuthorizationPolicy{}).ProtoReflect().Descriptor(),
	"RequestAuthentication": (&securityapi.RequestAuthentication{}).ProtoReflect().Descriptor(),
	"PeerAuthentication":    (&securityapi.PeerAuthentication{}).ProtoReflect().Descriptor(),
	"ServiceEntry":          (&networkingapi.ServiceEntry{}).ProtoReflect().Descriptor(),
	"WorkloadEntry":         (&networkingapi.WorkloadEntry{}).ProtoReflect().Descriptor(),
}

// everyField calls see with each field of a message and of those in it, and its path; maps count as what they hold.
func everyField(m protoreflect.MessageDescriptor, path string, see func(path string, f protoreflect.FieldDescriptor)) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		at := strings.TrimPrefix(path+"."+f.JSONName(), ".")
		see(at, f)
		inner := f.Message()
		if f.IsMap() {
			inner = f.MapValue().Message()
		}
		if inner != nil && inner.ParentFile().Package() != "google.protobuf" { // those are written as one value
			everyField(inner, at, see)
		}
	}
}

// unaccounted are the fields that have no line in a table, and the lines that have no field.
func unaccounted(fields []string, table map[string]string) (out []string) {
	for _, f := range fields {
		if table[f] == "" {
			out = append(out, f+": nothing is said of this field")
		}
	}
	for _, line := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(fields, line) {
			out = append(out, line+": there is no such field")
		}
	}
	return out
}

func pathsOf(kind string) (paths []string) {
	everyField(specs[kind], "", func(path string, _ protoreflect.FieldDescriptor) { paths = append(paths, path) })
	return paths
}

func TestEveryFieldThatDecidesAboutAccessIsAccountedFor(t *testing.T) {
	for kind, table := range fieldsOf {
		for _, wrong := range unaccounted(pathsOf(kind), table) {
			t.Errorf("%s: %s", kind, wrong)
		}
		// The same check finds each field that it does not know.
		for line := range table {
			without := maps.Clone(table)
			delete(without, line)
			if wrong := unaccounted(pathsOf(kind), without); len(wrong) != 1 || !strings.HasPrefix(wrong[0], line+": nothing") {
				t.Errorf("%s: without its line, field %s is not missed: %v", kind, line, wrong)
			}
		}
	}
}

type schema struct {
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
}

func (s schema) fields(path string) (paths []string) {
	for name, inner := range s.Properties {
		at := strings.TrimPrefix(path+"."+name, ".")
		paths = append(append(paths, at), inner.fields(at)...)
	}
	if s.Items != nil {
		paths = append(paths, s.Items.fields(path)...)
	}
	var values schema
	if json.Unmarshal(s.AdditionalProperties, &values) == nil {
		paths = append(paths, values.fields(path)...)
	}
	return paths
}

// The definitions that the mesh installs let through what the types know and nothing else, in each version that is served. Of a kind that
// is not in the table nobody reads anything, and its author is told.
func TestDefinitionsLetThroughWhatIsAccountedFor(t *testing.T) {
	paths, err := filepath.Glob("../../charts/lateen-crds/files/istio/*.yaml")
	if err != nil || len(paths) < 15 {
		t.Fatalf("%d definitions: %v", len(paths), err)
	}
	found := map[string]bool{}
	for _, path := range paths {
		var definition struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Served bool
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		kind := definition.Spec.Names.Kind
		table, effective := fieldsOf[kind]
		found[kind] = true
		for _, version := range definition.Spec.Versions {
			if !version.Served {
				continue
			}
			if !effective {
				withoutEffect(t, definition.Spec.Group+"/"+version.Name, kind)
				continue
			}
			fields := slices.DeleteFunc(version.Schema.OpenAPIV3Schema.Properties["spec"].fields(""), func(path string) bool { return path == "jwtRules.jwks_uri" }) // another name of jwksUri
			for _, wrong := range unaccounted(fields, table) {
				t.Errorf("%s %s: %s", kind, version.Name, wrong)
			}
		}
	}
	for kind := range fieldsOf {
		if !found[kind] {
			t.Errorf("there is no definition of %s", kind)
		}
	}
}

func withoutEffect(t *testing.T, apiVersion, kind string) {
	t.Helper()
	objects, problems := files.Decode("f.yaml", []byte("apiVersion: "+apiVersion+"\nkind: "+kind+"\nmetadata: {name: x}\nspec: {}\n"))
	if len(objects) != 1 || objects[0].Support != model.Ineffective || len(problems) == 0 || !strings.Contains(problems[len(problems)-1].Error(), "stored but ignored") {
		t.Errorf("%s %s: its fields are accounted for nowhere, and its author is told %v", apiVersion, kind, problems)
	}
}

// sample is a value that a field of a rule may have; "x" will do for most.
func sample(field string) string {
	switch name := strings.ToLower(field); {
	case strings.HasSuffix(name, "ipblocks"), strings.HasSuffix(name, ".ip"):
		return "10.0.0.1"
	case strings.HasSuffix(name, "ports"), strings.HasSuffix(name, ".port"):
		return "80"
	}
	return "x"
}

// held translates a policy of one rule as an API server hands it out.
func held(t *testing.T, action, rule string) (*security.Authorization, model.Condition) {
	t.Helper()
	raw := fmt.Sprintf(`{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"p","namespace":"shop"},"spec":{"action":%q,"rules":[%s]}}`, action, rule)
	value, problems := files.Served(spoiledKey, []byte(raw))
	if value == nil {
		t.Fatalf("%s: %v", rule, problems)
	}
	out, conditions := translate.Authorization(mesh, value.(*securityv1.AuthorizationPolicy))
	return out, conditions[0]
}

// judgedOrNamed holds a rule that says one thing to it: proxies are told of that, or the rule's author is, and then it allows nothing.
func judgedOrNamed(t *testing.T, what, rule, becomes string) {
	t.Helper()
	for _, action := range []string{"ALLOW", "DENY"} {
		out, condition := held(t, action, rule)
		told := len(out.Rules) == 1 && !slices.ContainsFunc(out.Rules[0].Clauses, func(c *security.Clause) bool {
			return !slices.ContainsFunc(c.Matches, func(m *security.Match) bool { return len(m.ProtoReflect().GetUnknown()) == 0 && m.String() != "" })
		})
		switch becomes {
		case judged:
			if !told || condition.Reason != "Accepted" {
				t.Errorf("%s of %s: proxies are told %v, its author %v", what, action, out.Rules, condition)
			}
		case named:
			if told || action == "ALLOW" && len(out.Rules) > 0 || !strings.Contains(condition.Message, what) {
				t.Errorf("%s of %s: proxies are told %v, its author %v", what, action, out.Rules, condition)
			}
		default:
			t.Errorf("%s: %s", what, becomes)
		}
	}
}

// The table says what is so.
func TestFieldsOfRulesAreJudgedOrNamed(t *testing.T) {
	everyField(specs["AuthorizationPolicy"], "", func(path string, f protoreflect.FieldDescriptor) {
		entry, field, inSource := strings.Cut(path, "rules.from.source.")
		rule := `{"from":[{"source":{%q:[%q]}}]}`
		if !inSource {
			if entry, field, inSource = strings.Cut(path, "rules.to.operation."); !inSource {
				return
			}
			rule = `{"to":[{"operation":{%q:[%q]}}]}`
		}
		if entry != "" || !f.IsList() || f.Kind() != protoreflect.StringKind {
			t.Errorf("%s is no list of texts: say how it is judged", path)
			return
		}
		judgedOrNamed(t, field, fmt.Sprintf(rule, field, sample(field)), fieldsOf["AuthorizationPolicy"][path])
	})
}

// The attributes of conditions are those of Istio's reference; no descriptor has them.
func TestAttributesOfConditionsAreJudgedOrNamed(t *testing.T) {
	for key, becomes := range map[string]string{
		"source.ip": judged, "source.namespace": judged, "source.principal": judged, "source.serviceAccount": judged, "source.trustDomain": judged,
		"destination.ip": judged, "destination.port": judged,
		"remote.ip": named, "connection.sni": named, "request.headers[x]": named, "request.auth.principal": named, "request.auth.audiences": named,
		"request.auth.presenter": named, "request.auth.claims[x]": named, "experimental.envoy.filters.a.b[c]": named,
	} {
		for _, list := range []string{"values", "notValues"} {
			judgedOrNamed(t, key, fmt.Sprintf(`{"when":[{"key":%q,%q:[%q]}]}`, key, list, sample(key)), becomes)
		}
	}
}

// wordless are objects of which one enum has a value without a name, by the enum's path. A word that nobody knows is refused by the decoder.
var wordless = map[string]string{
	"AuthorizationPolicy action":            `{"action":%s}`,
	"PeerAuthentication mtls.mode":          `{"mtls":{"mode":%s}}`,
	"PeerAuthentication portLevelMtls.mode": `{"selector":{"matchLabels":{"a":"b"}},"portLevelMtls":{"80":{"mode":%s}}}`,
	"ServiceEntry location":                 `{"hosts":["a.example"],"location":%s,"resolution":"DNS","ports":[{"number":443,"name":"tls","protocol":"TLS"}]}`,
	"ServiceEntry resolution":               `{"hosts":["a.example"],"resolution":%s,"ports":[{"number":443,"name":"tls","protocol":"TLS"}]}`,
}

func TestValuesOfEnumsThatNobodyKnowsAreRefused(t *testing.T) {
	seen := map[string]bool{}
	for kind, spec := range specs {
		everyField(spec, "", func(path string, f protoreflect.FieldDescriptor) {
			if f.Kind() != protoreflect.EnumKind {
				return
			}
			at := kind + " " + path
			seen[at] = true
			form, known := wordless[at]
			if !known {
				t.Errorf("%s: nothing says that its unknown values are refused", at)
				return
			}
			group := "networking.istio.io"
			if fieldsOf[kind]["selector"] != "" {
				group = "security.istio.io"
			}
			key := model.Key{Group: group, Kind: kind, Namespace: "shop", Name: "p"}
			for _, value := range []string{"99", `"PONDER"`} {
				raw := `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"name":"p","namespace":"shop"},"spec":` + fmt.Sprintf(form, value) + `}`
				if taken, problems := files.Served(key, []byte(raw)); taken != nil || len(problems) == 0 {
					t.Errorf("%s: %s is taken", at, value)
				}
			}
			for i := range f.Enum().Values().Len() {
				value := f.Enum().Values().Get(i)
				raw := `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"name":"p","namespace":"shop"},"spec":` + fmt.Sprintf(form, `"`+string(value.Name())+`"`) + `}`
				if _, problems := files.Served(key, []byte(raw)); slices.ContainsFunc(problems, func(p files.Problem) bool {
					return strings.Contains(p.Message, "unknown") || strings.Contains(p.Message, "invalid value")
				}) {
					t.Errorf("%s: %s is not known: %v", at, value.Name(), problems)
				}
			}
		})
	}
	for at := range wordless {
		if !seen[at] {
			t.Errorf("%s: there is no such enum", at)
		}
	}
}

// One place each decides about every action and every mode; a new one needs a decision.
func TestEveryActionAndModeIsDecided(t *testing.T) {
	for value, name := range securityapi.AuthorizationPolicy_Action_name {
		policy := &securityv1.AuthorizationPolicy{}
		policy.Spec.Action = securityapi.AuthorizationPolicy_Action(value)
		out, conditions := translate.Authorization(mesh, policy)
		enforced, known := map[string]bool{"ALLOW": true, "DENY": true, "AUDIT": false, "CUSTOM": false}[name]
		if !known || (out != nil) != enforced || !enforced && !strings.Contains(conditions[0].Message, name) {
			t.Errorf("%s: proxies are told %v, its author %v", name, out, conditions)
		}
	}
	for value, name := range securityapi.PeerAuthentication_MutualTLS_Mode_name {
		peers := &securityv1.PeerAuthentication{}
		peers.Spec.Mtls = &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_Mode(value)}
		want, known := map[string]translate.Mode{"UNSET": translate.Strict, "DISABLE": translate.Permissive, "PERMISSIVE": translate.Permissive, "STRICT": translate.Strict}[name]
		strict := &securityv1.PeerAuthentication{}
		strict.Spec.Mtls = &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_STRICT}
		if got := translate.Inherited(strict, peers); !known || got != want {
			t.Errorf("%s in a mesh that is STRICT is %v, want %v", name, got, want)
		}
	}
}
