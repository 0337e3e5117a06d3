package charts_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/waypoint"
)

func repository(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("../dashboards/" + pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v (%v)", pattern, names, err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = data
	}
	return files
}

func TestRules(t *testing.T) {
	rule := find(t, rendered(t, "lateen", values(t, "{monitoring: {rules: true, labels: {release: prometheus}}}")).Objects, "PrometheusRule", "lateen")
	if rule.GetNamespace() != "lateen-system" || rule.GetLabels()["release"] != "prometheus" {
		t.Errorf("%s with the labels %v", rule.GetNamespace(), rule.GetLabels())
	}
	var want map[string]any
	if err := yaml.Unmarshal(repository(t, "alerts.yaml")["alerts.yaml"], &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rule.Object["spec"], want["spec"]) {
		t.Error("the chart's rules are not those of dashboards/alerts.yaml: run `make dashboards`")
	}
}

// No deployer leads where there is none. Where there is one its silence says that it is away.
func TestNoRuleIsOfADeployerThatIsOff(t *testing.T) {
	const alert, expr = "LateenDeployerWithoutLeader", "absent(lateen_deployer_leader == 1)"
	rules := func(text string) (all int, of string) {
		groups, _, _ := unstructured.NestedSlice(find(t, rendered(t, "lateen", values(t, text)).Objects, "PrometheusRule", "lateen").Object, "spec", "groups")
		for _, g := range groups {
			for _, r := range g.(map[string]any)["rules"].([]any) {
				all++
				if r := r.(map[string]any); r["alert"] == alert {
					of, _ = r["expr"].(string)
				}
			}
		}
		return all, of
	}
	all, with := rules("{monitoring: {rules: true}}")
	rest, without := rules("{monitoring: {rules: true}, deployer: {enabled: false}}")
	if with != expr || without != "" || rest != all-1 {
		t.Errorf("with a deployer %q among %d rules, without one %q among %d", with, all, without, rest)
	}
}

func TestDashboards(t *testing.T) {
	objects := rendered(t, "lateen", values(t, "{monitoring: {dashboards: true}}")).Objects
	for name, want := range repository(t, "*.json") {
		m := find(t, objects, "ConfigMap", "lateen-dashboard-"+strings.TrimSuffix(name, ".json"))
		data, _, _ := unstructured.NestedStringMap(m.Object, "data")
		if m.GetLabels()["grafana_dashboard"] != "1" || data["lateen-"+name] != string(want) || len(data) != 1 {
			t.Errorf("%s is not dashboards/%s, or Grafana does not find it (labels %v): run `make dashboards`", m.GetName(), name, m.GetLabels())
		}
	}
}

// The chart holds nothing that dashboards/ does not.
func TestTheChartsMonitoringIsTheRepositorys(t *testing.T) {
	want := repository(t, "*")
	entries, err := os.ReadDir("lateen/monitoring")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile("lateen/monitoring/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, want[e.Name()]) {
			t.Errorf("charts/lateen/monitoring/%s differs from dashboards/%[1]s: run `make dashboards`", e.Name())
		}
		delete(want, e.Name())
	}
	for name := range want {
		t.Errorf("the chart has no %s: run `make dashboards`", name)
	}
}

func TestMonitoringIsAskedFor(t *testing.T) {
	for _, o := range rendered(t, "lateen", nil).Objects {
		if o.GetKind() == "PodMonitor" || o.GetKind() == "PrometheusRule" || o.GetLabels()["grafana_dashboard"] != "" {
			t.Errorf("%s %s where nobody asked for it", o.GetKind(), o.GetName())
		}
	}
}

// Dashboards and alerts tell nodes apart by a label that is not the program's; what a proxy says of a pod keeps that pod's name.
func TestMonitorsNameTheNode(t *testing.T) {
	objects := rendered(t, "lateen", values(t, "{monitoring: {podMonitors: true}}")).Objects
	for _, part := range []string{"control", "agent", "node", "waypoint", "deployer"} {
		endpoints, _, _ := unstructured.NestedSlice(find(t, objects, "PodMonitor", "lateen-"+part).Object, "spec", "podMetricsEndpoints")
		e := endpoints[0].(map[string]any)
		relabelings, _, _ := unstructured.NestedSlice(e, "relabelings")
		if !slices.ContainsFunc(relabelings, func(r any) bool {
			return reflect.DeepEqual(r, map[string]any{"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "node"})
		}) || (e["honorLabels"] == true) != (part == "node") {
			t.Errorf("%s: %v", part, e)
		}
	}
}

// A waypoint's pods have the labels and the port by which the monitor finds them, in whatever namespace their Gateway is.
func TestTheMonitorOfWaypointsFindsThem(t *testing.T) {
	raw, err := find(t, rendered(t, "lateen", values(t, "{monitoring: {podMonitors: true}}")).Objects, "PodMonitor", "lateen-waypoint").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			Selector            metav1.LabelSelector
			NamespaceSelector   struct{ Any bool }
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	if err := yaml.Unmarshal(raw, &monitor); err != nil {
		t.Fatal(err)
	}
	spec := monitor.Spec
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	gw := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "way"},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: waypoint.Class, Listeners: []gatewayv1.Listener{{Name: "mesh", Port: waypoint.HBONEPort}}}}
	made, err := waypoint.Build(waypoint.Input{Gateway: gw})
	if err != nil {
		t.Fatal(err)
	}
	pod := made.Deployment.Spec.Template
	var ports []string
	for _, p := range pod.Spec.Containers[0].Ports {
		ports = append(ports, p.Name)
	}
	if !selector.Matches(labels.Set(pod.Labels)) || len(spec.PodMetricsEndpoints) != 1 || !slices.Contains(ports, spec.PodMetricsEndpoints[0].Port) || !spec.NamespaceSelector.Any {
		t.Errorf("%+v does not find a pod with the labels %v and the ports %v", spec, pod.Labels, ports)
	}
}

// A monitor without pods would look like a deployer that is away.
func TestNoMonitorIsOfADeployerThatIsOff(t *testing.T) {
	for _, o := range rendered(t, "lateen", values(t, "{monitoring: {podMonitors: true}, deployer: {enabled: false}}")).Objects {
		if o.GetKind() == "PodMonitor" && o.GetName() == "lateen-deployer" {
			t.Error("it has a PodMonitor")
		}
	}
}

func TestAnnotationsSayWhereMetricsAre(t *testing.T) {
	for text, want := range map[string]bool{"{}": true, "{monitoring: {annotations: false}}": false} {
		objects := rendered(t, "lateen", values(t, text)).Objects
		for part, port := range map[string]string{"control": "15014", "agent": "15014", "node": "15020", "deployer": "15014"} {
			kind := map[bool]string{true: "Deployment", false: "DaemonSet"}[part == "control" || part == "deployer"]
			a := podOf(t, objects, kind, "lateen-"+part).Annotations
			if got := a["prometheus.io/scrape"] == "true" && a["prometheus.io/port"] == port && a["prometheus.io/path"] == "/metrics"; got != want {
				t.Errorf("%s with %s: %v", part, text, a)
			}
		}
	}
}

func TestLogsAreJSONOnRequest(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		text := "{log: {format: " + format + "}}"
		for name, kind := range map[string]string{"lateen-control": "Deployment", "lateen-agent": "DaemonSet"} {
			if args := arguments(t, text, kind, name); !slices.Contains(args, "--log-format="+format) {
				t.Errorf("%s has the arguments %v", name, args)
			}
		}
		if env := environment(t, text, "DaemonSet", "lateen-node"); env["LOG_FORMAT"] != format {
			t.Errorf("the node proxy has LOG_FORMAT=%s", env["LOG_FORMAT"])
		}
	}
}
