package charts_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/charts"
	"lateen.dev/lateen/internal/install/render"
)

func TestValuesThatMakeNoSenseAreRefused(t *testing.T) {
	for _, c := range []struct{ values, says string }{
		{"{contrl: {}}", "there is no value 'contrl'"},
		{"{control: {replica: 3}}", "there is no value 'replica' in control"},
		{"{control: {replicas: 0}}", "control.replicas minimum: got 0"},
		{"{control: {replicas: many}}", "control.replicas got string, want integer"},
		{"{image: {pullPolicy: Sometimes}}", "image.pullPolicy value must be one of 'Always', 'IfNotPresent', 'Never'"},
		{"{agent: {excludeInboundPorts: [70000]}}", "agent.excludeInboundPorts.0 maximum"},
		{"{agent: {maxUnavailable: 0}}", "agent.maxUnavailable"},
		{"{agent: {maxUnavailable: 0%}}", "agent.maxUnavailable"},
		{"{node: {maxSurge: 990%}}", "node.maxSurge"},
		{"{node: {accelerator: fast}}", "node.accelerator value must be one of 'off', 'splice'"},
		{"{node: {accelerator: true}}", "node.accelerator value must be one of"},
		{"{node: {env: {NODE_NAME: a}}}", "node.env.NODE_NAME is set by the chart"},
		{"{control: {podLabels: {app: a}}}", "control.podLabels.app is a label of the chart's own"},
		{"{control: {podLabels: {istio.io/dataplane-mode: ambient}}}", "is a label of the chart's own"},
		{"{control: {autoscaling: {enabled: true, minReplicas: 9}}}", "minReplicas is 9, above maxReplicas, which is 5"},
		{"{deployer: {namespaces: [A_B]}}", "deployer.namespaces.0"},
		{"{takeOver: linkerd}", "takeOver value must be one of '', 'istio'"},
		{"{mesh: {trustDomain: A_B}}", "mesh.trustDomain"},
	} {
		_, err := render.Chart(charts.FS, "lateen", values(t, c.values), render.Release{Name: "lateen", Namespace: "lateen-system"})
		if !render.IsValueError(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.values, err, c.says)
		}
	}
}

// node is one place in a tree of values.
type place struct {
	path []string
	// children are the keys below; nil for a leaf.
	children []string
}

func (p place) String() string { return strings.Join(p.path, ".") }

// closed are the places of a schema that list all that may be below them.
func closed(schema map[string]any, path []string) []place {
	properties, _ := schema["properties"].(map[string]any)
	if properties == nil {
		return nil
	}
	out := []place{{path, slices.Sorted(maps.Keys(properties))}}
	for name, child := range properties {
		if c, ok := child.(map[string]any); ok {
			out = append(out, closed(c, append(slices.Clone(path), name))...)
		}
	}
	return out
}

func at(tree map[string]any, path []string) map[string]any {
	for _, name := range path {
		tree, _ = tree[name].(map[string]any)
	}
	return tree
}

func TestSchemaAndValuesHaveTheSameKeys(t *testing.T) {
	for _, chart := range []string{"lateen", "lateen-crds"} {
		defaults, text, err := render.Defaults(charts.FS, chart)
		if err != nil {
			t.Fatal(err)
		}
		var schema map[string]any
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		for _, p := range closed(schema, nil) {
			want := slices.DeleteFunc(p.children, func(name string) bool { return p.path == nil && name == "global" })
			if got := slices.Sorted(maps.Keys(at(defaults, p.path))); !slices.Equal(got, want) {
				t.Errorf("%s: below %q the schema has %v, values.yaml %v", chart, p, want, got)
			}
		}
		objects(schema, nil, func(path []string, o map[string]any) {
			if _, says := o["additionalProperties"]; !says && strings.Join(path, ".") != "global" {
				t.Errorf("%s: %v accepts any key", chart, path)
			}
		})
	}
}

// objects visits every object of a schema that is not one of its definitions.
func objects(schema map[string]any, path []string, visit func([]string, map[string]any)) {
	if schema["type"] == "object" {
		visit(path, schema)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, child := range properties {
		objects(child.(map[string]any), append(slices.Clone(path), name), visit)
	}
}

// other is another good value for those that cannot be guessed from the default.
var other = map[string]string{
	"image.pullPolicy": "Never", "image.pullSecrets": "[s]", "mesh.trustDomainAliases": "[a.example]", "log.level": "debug", "log.format": "json",
	"control.resources": "{requests: {cpu: 7m}}", "agent.resources": "{requests: {cpu: 7m}}", "node.resources": "{requests: {cpu: 7m}}",
	"control.certificates.ttl": "1h", "control.certificates.minTTL": "5s", "control.certificates.rotationLeastStage": "3m", "control.certificates.signer": "a.example/b", "control.certificates.signerRoot": "secret/a/b",
	"control.certificates.ownIdentityTTL": "30m", "control.nodeProxyAccounts": "[a/b]", "control.ownIdentityAccounts": "[a/b]", "control.advertise": "[a]", "agent.excludeInboundPorts": "[1]", "agent.excludeOutboundPorts": "[1]",
	"agent.excludeOutboundRanges": "[10.0.0.0/8]", "agent.tolerations": "[]", "node.tolerations": "[]", "control.tolerations": "[{operator: Exists}]",
	"waypoint.resources": "{requests: {cpu: 7m}}", "waypoint.bind": "at-once", "deployer.resources": "{requests: {cpu: 7m}}", "deployer.namespaces": "[a]", "deployer.tolerations": "[{operator: Exists}]",
	"node.workers": `"2"`, "node.accelerator": "splice", "cni.binDir": "/opt/x", "cni.confDir": "/etc/x", "takeOver": "istio", "monitoring.interval": "1m",
}

// within says what must be on so that a value matters.
var within = map[string]string{"control.certificates": "{control: {certificates: {signer: c.example/d}}}", "control.autoscaling": "{control: {autoscaling: {enabled: true}}}", "monitoring": "{monitoring: {podMonitors: true}}"}

func leaves(tree map[string]any, path []string, visit func(path []string, value any)) {
	for name, value := range tree {
		below := append(slices.Clone(path), name)
		if m, ok := value.(map[string]any); ok && len(m) > 0 && name != "resources" {
			leaves(m, below, visit)
			continue
		}
		visit(below, value)
	}
}

// A value that changes nothing is a promise that is not kept.
func TestEveryValueIsUsed(t *testing.T) {
	defaults, _, err := render.Defaults(charts.FS, "lateen")
	if err != nil {
		t.Fatal(err)
	}
	without := map[string]string{} // what the switches in within render to, by the switch
	leaves(defaults, nil, func(path []string, value any) {
		name, key := strings.Join(path, "."), ""
		base := map[string]any{}
		for prefix, on := range within {
			if strings.HasPrefix(name, prefix+".") && name != prefix+".enabled" && name != prefix+".podMonitors" {
				base, key = values(t, on), prefix
			}
		}
		changed := alternative(t, name, value)
		over := map[string]any{path[len(path)-1]: changed}
		for i := len(path) - 2; i >= 0; i-- {
			over = map[string]any{path[i]: over}
		}
		if without[key] == "" {
			without[key] = text(t, base)
		}
		if without[key] == text(t, render.Merge(base, over)) {
			t.Errorf("%s: %v renders to the same as %v", name, changed, value)
		}
	})
}

func alternative(t *testing.T, name string, value any) any {
	t.Helper()
	if chosen, ok := other[name]; ok {
		var v any
		if err := yaml.Unmarshal([]byte(chosen), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	switch v := value.(type) {
	case bool:
		return !v
	case float64:
		return v + 1
	case string:
		return v + "x"
	case map[string]any:
		return map[string]any{"SOME_KEY": "some-value"}
	}
	t.Fatalf("%s: say in `other` what else it could be than %v (%T)", name, value, value)
	return nil
}

func text(t *testing.T, values map[string]any) string {
	t.Helper()
	var out strings.Builder
	for _, o := range rendered(t, "lateen", values).Objects {
		b, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	return out.String()
}
