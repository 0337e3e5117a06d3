package charts_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/charts"
	"lateen.dev/lateen/internal/install/render"
)

// everything switches on what is off by default, so that each template renders.
const everything = `
takeOver: istio
image: {pullSecrets: [registry]}
mesh: {trustDomainAliases: [old.example]}
control: {autoscaling: {enabled: true}, certificates: {signer: example.com/mesh, signerApprove: true}, ownIdentityAccounts: [shop/waypoint], advertise: [mesh.example], nodeSelector: {a: b}, podLabels: {a: b}, env: {GOGC: 100}}
agent: {excludeInboundPorts: [8080, 22], excludeOutboundPorts: [53], excludeOutboundRanges: [10.0.0.0/8], podAnnotations: {a: b}}
node: {workers: 50%, env: {LATEEN_IDLE_TIMEOUT: 1h}}
deployer: {namespaces: [shop], istioClass: true, podAnnotations: {a: b}}
monitoring: {podMonitors: true, rules: true, dashboards: true, labels: {release: prometheus}}
`

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func rendered(t *testing.T, chart string, values map[string]any) *render.Rendered {
	t.Helper()
	r, err := render.Chart(charts.FS, chart, values, render.Release{Name: "lateen", Namespace: "lateen-system", KubeVersion: "v1.36.3",
		APIs: []string{"gateway.networking.k8s.io/v1/GatewayClass"}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// strict decodes an object as the API server would with fieldValidation=Strict.
func strict(t *testing.T, o *unstructured.Unstructured) runtime.Object {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, gatewayv1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	typed, _, err := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

func TestEveryObjectDecodesStrictly(t *testing.T) {
	for name, text := range map[string]string{"defaults": "{}", "everything": everything} {
		objects := rendered(t, "lateen", values(t, text)).Objects
		if len(objects) < 15 {
			t.Errorf("%s: %d objects only", name, len(objects))
		}
		for _, o := range objects {
			if o.GetKind() == "PodMonitor" || o.GetKind() == "PrometheusRule" {
				continue // its types are the operator's; TestMonitors and TestRules look at it
			}
			strict(t, o)
		}
	}
}

func TestObjectsCarryTheirLabels(t *testing.T) {
	for _, o := range rendered(t, "lateen", values(t, everything)).Objects {
		l := o.GetLabels()
		if l["app.kubernetes.io/name"] != "lateen" || l["app.kubernetes.io/part-of"] != "lateen" || l["app"] != "lateen-"+l["app.kubernetes.io/component"] {
			t.Errorf("%s %s has the labels %v", o.GetKind(), o.GetName(), l)
		}
	}
}

func podOf(t *testing.T, objects []*unstructured.Unstructured, kind, name string) corev1.PodTemplateSpec {
	t.Helper()
	var workload struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	raw, err := find(t, objects, kind, name).MarshalJSON()
	if err == nil {
		err = yaml.Unmarshal(raw, &workload)
	}
	if err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template
}

func TestPods(t *testing.T) {
	objects := rendered(t, "lateen", nil).Objects
	for _, c := range []struct {
		kind, name, container, image, account, priority string
		port                                            int32
		caps                                            []corev1.Capability
		hostNetwork, allNodes, root                     bool
	}{
		{"Deployment", "lateen-control", "control", "docker.io/lateen/control:0.1.0", "lateen-control", "system-cluster-critical", 15014, nil, false, false, false},
		{"Deployment", "lateen-deployer", "deployer", "docker.io/lateen/control:0.1.0", "lateen-deployer", "system-cluster-critical", 15014, nil, false, false, false},
		{"DaemonSet", "lateen-agent", "agent", "docker.io/lateen/agent:0.1.0", "lateen-agent", "system-node-critical", 15014,
			[]corev1.Capability{"NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE"}, true, true, true},
		{"DaemonSet", "lateen-node", "proxy", "docker.io/lateen/proxy:0.1.0", "lateen-node", "system-node-critical", 15021,
			[]corev1.Capability{"NET_ADMIN", "SYS_ADMIN", "NET_RAW"}, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podOf(t, objects, c.kind, c.name)
			s := pod.Spec
			if len(s.Containers) != 1 {
				t.Fatalf("%d containers", len(s.Containers))
			}
			k := s.Containers[0]
			if k.Name != c.container || k.Image != c.image || s.ServiceAccountName != c.account || s.PriorityClassName != c.priority {
				t.Errorf("container %s of %s as %s with priority %s", k.Name, k.Image, s.ServiceAccountName, s.PriorityClassName)
			}
			if s.HostNetwork != c.hostNetwork || s.HostPID != c.hostNetwork {
				t.Errorf("hostNetwork %v, hostPID %v", s.HostNetwork, s.HostPID)
			}
			everywhere := slices.ContainsFunc(s.Tolerations, func(x corev1.Toleration) bool { return x.Operator == "Exists" && x.Key == "" && x.Effect == "" })
			if everywhere != c.allNodes {
				t.Errorf("tolerates %v", s.Tolerations)
			}
			if p := k.ReadinessProbe; p == nil || p.HTTPGet == nil || p.HTTPGet.Port.IntVal != c.port {
				t.Errorf("readiness probe %v", p)
			} else if p.TimeoutSeconds < 5 {
				t.Errorf("readiness probe waits %d s: a busy node takes longer than one", p.TimeoutSeconds)
			} else if c.name == "lateen-node" && p.PeriodSeconds*p.FailureThreshold < 60 {
				t.Errorf("a proxy whose agent is being replaced is not ready after %d s: a DaemonSet then ends it before there is another one", p.PeriodSeconds*p.FailureThreshold)
			}
			sec := k.SecurityContext
			if sec.Privileged != nil && *sec.Privileged || *sec.AllowPrivilegeEscalation || !*sec.ReadOnlyRootFilesystem {
				t.Errorf("security context %v", sec)
			}
			if !slices.Equal(sec.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(sec.Capabilities.Add, c.caps) {
				t.Errorf("capabilities %v", sec.Capabilities)
			}
			if root := sec.RunAsUser != nil && *sec.RunAsUser == 0; root != c.root || !c.root && !*s.SecurityContext.RunAsNonRoot {
				t.Errorf("root: %v", root)
			}
			if k.Resources.Requests.Cpu().IsZero() || k.Resources.Limits.Memory().IsZero() || !k.Resources.Limits.Cpu().IsZero() {
				t.Errorf("resources %v: ask for CPU, bound memory, do not throttle", k.Resources)
			}
			if pod.Labels["istio.io/dataplane-mode"] != "none" || *s.TerminationGracePeriodSeconds < 30 {
				t.Errorf("labels %v, grace %d", pod.Labels, *s.TerminationGracePeriodSeconds)
			}
			if pod.Annotations["prometheus.io/port"] == "" {
				t.Error("no annotation says where the metrics are")
			}
		})
	}
}

func arguments(t *testing.T, text, kind, name string) []string {
	t.Helper()
	return podOf(t, rendered(t, "lateen", values(t, text)).Objects, kind, name).Spec.Containers[0].Args
}

func environment(t *testing.T, text, kind, name string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range podOf(t, rendered(t, "lateen", values(t, text)).Objects, kind, name).Spec.Containers[0].Env {
		if _, twice := env[e.Name]; twice {
			t.Errorf("%s has %s twice, which server-side apply refuses", name, e.Name)
		}
		env[e.Name] = e.Value
	}
	return env
}

func TestSettingsReachThePrograms(t *testing.T) {
	for _, arg := range arguments(t, "{}", "Deployment", "lateen-control") {
		if strings.HasPrefix(arg, "--own-identity-accounts") {
			t.Errorf("by default pods get certificates in their own names: %s", arg)
		}
	}
	for _, c := range []struct{ values, kind, name, want string }{
		{"{}", "Deployment", "lateen-control", "--kube"},
		{"{}", "Deployment", "lateen-control", "--node-proxy-accounts=lateen-system/lateen-node"},
		{"{control: {nodeProxyAccounts: [a/b]}}", "Deployment", "lateen-control", "--node-proxy-accounts=lateen-system/lateen-node,a/b"},
		{"{control: {ownIdentityAccounts: [a/b, c/d]}}", "Deployment", "lateen-control", "--own-identity-accounts=a/b,c/d"},
		{"{}", "Deployment", "lateen-control", "--own-identity-ttl=1h"},
		{"{}", "Deployment", "lateen-control", "--advertise=lateen-control.lateen-system.svc,lateen-control.lateen-system.svc.cluster.local,lateen-control.lateen-system"},
		{"{takeOver: istio}", "Deployment", "lateen-control", "--node-proxy-accounts=lateen-system/lateen-node,istio-system/ztunnel"},
		{"{takeOver: istio, mesh: {rootNamespace: mesh}}", "Deployment", "lateen-control", "--node-proxy-accounts=lateen-system/lateen-node,mesh/ztunnel"},
		{"{control: {certificates: {signer: example.com/mesh}}}", "Deployment", "lateen-control", "--ca-signer=example.com/mesh"},
		{"{log: {format: json, level: debug}}", "Deployment", "lateen-control", "--log-format=json"},
		{"{log: {level: debug}}", "DaemonSet", "lateen-agent", "--log-level=debug"},
		{"{agent: {excludeInboundPorts: [22, 8080]}}", "DaemonSet", "lateen-agent", "--exclude-inbound-ports=22,8080"},
		{"{agent: {excludeOutboundRanges: [10.0.0.0/8, fd00::/8]}}", "DaemonSet", "lateen-agent", "--exclude-outbound-ranges=10.0.0.0/8,fd00::/8"},
		{"{agent: {dnsCapture: false}}", "DaemonSet", "lateen-agent", "--dns-capture=false"},
		{"{}", "Deployment", "lateen-deployer", "--image=docker.io/lateen/proxy:0.1.0"},
		{"{}", "Deployment", "lateen-deployer", "--control=https://lateen-control.lateen-system.svc:15012"},
		{"{}", "Deployment", "lateen-deployer", "--istio-class=false"},
		{"{takeOver: istio, mesh: {rootNamespace: mesh}}", "Deployment", "lateen-deployer", "--istio-namespace=mesh"},
		{"{}", "Deployment", "lateen-deployer", "--defaults-from=lateen-system"},
		{"{}", "Deployment", "lateen-deployer", "--requests=cpu=100m"},
		{"{takeOver: istio}", "Deployment", "lateen-deployer", "--istio-class=true"},
		{"{takeOver: istio}", "Deployment", "lateen-deployer", "--defaults-from=lateen-system,istio-system"},
		{"{deployer: {istioClass: true, namespaces: [a, b]}}", "Deployment", "lateen-deployer", "--istio-class=true"},
		{"{deployer: {istioClass: true, namespaces: [a, b]}}", "Deployment", "lateen-deployer", "--namespaces=a,b"},
	} {
		if args := arguments(t, c.values, c.kind, c.name); !slices.Contains(args, c.want) {
			t.Errorf("with %s %s has the arguments %v, without %s", c.values, c.name, args, c.want)
		}
	}
	env := environment(t, "{node: {env: {LATEEN_IDLE_TIMEOUT: 1h, RUST_LOG: warn}, drainSeconds: 90}}", "DaemonSet", "lateen-node")
	for name, want := range map[string]string{"XDS_ADDRESS": "https://lateen-control.lateen-system.svc:15012", "INPOD_UDS": "/var/run/lateen/zds.sock",
		"LATEEN_IDLE_TIMEOUT": "1h", "RUST_LOG": "warn", "TERMINATION_GRACE_PERIOD_SECONDS": "90"} {
		if env[name] != want {
			t.Errorf("%s is %q, not %q", name, env[name], want)
		}
	}
}

func TestTheAcceleratorIsAskedFor(t *testing.T) {
	for text, want := range map[string]string{
		"{}": "", "{node: {accelerator: off}}": "", `{node: {accelerator: "off"}}`: "", // YAML reads the first one as false
		"{node: {accelerator: splice}}":                                     "splice",
		"{node: {accelerator: splice, env: {LATEEN_ACCELERATOR: \"off\"}}}": "off",
	} {
		if got := environment(t, text, "DaemonSet", "lateen-node")["LATEEN_ACCELERATOR"]; got != want {
			t.Errorf("with %s LATEEN_ACCELERATOR is %q, not %q", text, got, want)
		}
	}
	// In the kernel CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON.
	objects := rendered(t, "lateen", values(t, "{node: {accelerator: splice}}")).Objects
	capabilities := podOf(t, objects, "DaemonSet", "lateen-node").Spec.Containers[0].SecurityContext.Capabilities.Add
	for _, needed := range []corev1.Capability{"NET_ADMIN", "SYS_ADMIN"} {
		if !slices.Contains(capabilities, needed) {
			t.Errorf("the proxy has %v, without %s", capabilities, needed)
		}
	}
}

// The deployer runs pods: where it is switched off, or limited, it has no right to.
func TestTheDeployersRightsCanBeLimited(t *testing.T) {
	for _, o := range rendered(t, "lateen", values(t, "{deployer: {enabled: false}}")).Objects {
		if strings.Contains(o.GetName(), "deployer") {
			t.Errorf("%s %s is there although it is switched off", o.GetKind(), o.GetName())
		}
	}
	var roles []string
	for _, o := range rendered(t, "lateen", values(t, "{deployer: {namespaces: [a, b]}}")).Objects {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		switch {
		case o.GetName() != "lateen-deployer" || len(rules) == 0:
		case o.GetKind() == "ClusterRole" && len(rules) != 1:
			t.Errorf("the ClusterRole has %v", rules)
		case o.GetKind() == "Role":
			roles = append(roles, o.GetNamespace())
		}
	}
	slices.Sort(roles)
	if !slices.Equal(roles, []string{"a", "b"}) {
		t.Errorf("Roles are in %v", roles)
	}
}

// A kubelet that cannot reach the API server starts no container anew whose environment is in a ConfigMap or a Secret.
func TestNoEnvironmentIsTakenFromTheAPIServer(t *testing.T) {
	objects := rendered(t, "lateen", nil).Objects
	for kind, names := range map[string][]string{"Deployment": {"lateen-control", "lateen-deployer"}, "DaemonSet": {"lateen-agent", "lateen-node"}} {
		for _, name := range names {
			for _, c := range podOf(t, objects, kind, name).Spec.Containers {
				if len(c.EnvFrom) > 0 {
					t.Errorf("%s has envFrom %v", name, c.EnvFrom)
				}
				for _, v := range c.Env {
					if v.ValueFrom != nil && v.ValueFrom.FieldRef == nil {
						t.Errorf("%s takes %s from %v", name, v.Name, v.ValueFrom)
					}
				}
			}
		}
	}
	env := environment(t, "{mesh: {trustDomain: mesh.example, trustDomainAliases: [a, b]}}", "DaemonSet", "lateen-node")
	if env["TRUST_DOMAIN"] != "mesh.example" || env["TRUST_DOMAIN_ALIASES"] != "a,b" {
		t.Errorf("what the whole mesh agrees on does not reach the node proxy: %v", env)
	}
}

// The node proxy refuses nothing that it does not know, so a name that is spelled wrong would go unnoticed.
func TestTheProxyKnowsItsVariables(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range environment(t, "{node: {workers: 2, accelerator: splice}}", "DaemonSet", "lateen-node") {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("the chart sets %s, which docs/reference/environment.md does not list", name)
		}
	}
}

func TestMonitors(t *testing.T) {
	objects := rendered(t, "lateen", values(t, "{monitoring: {podMonitors: true, interval: 30s, labels: {release: prometheus}}}")).Objects
	for _, part := range []string{"control", "agent", "node"} {
		m := find(t, objects, "PodMonitor", "lateen-"+part)
		endpoints, _, _ := unstructured.NestedSlice(m.Object, "spec", "podMetricsEndpoints")
		app, _, _ := unstructured.NestedString(m.Object, "spec", "selector", "matchLabels", "app")
		if len(endpoints) != 1 || endpoints[0].(map[string]any)["port"] != "http-metrics" || endpoints[0].(map[string]any)["interval"] != "30s" || app != "lateen-"+part || m.GetLabels()["release"] != "prometheus" {
			t.Errorf("%s: %v", part, m.Object)
		}
		kind := map[bool]string{true: "Deployment", false: "DaemonSet"}[part == "control"]
		ports := podOf(t, objects, kind, "lateen-"+part).Spec.Containers[0].Ports
		if !slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == "http-metrics" }) {
			t.Errorf("%s has no port http-metrics: %v", part, ports)
		}
	}
}

// A waypoint of Istio's class belongs to whoever has Istio's name; without the Gateway API there are no classes.
func TestClasses(t *testing.T) {
	for _, o := range rendered(t, "lateen", nil).Objects {
		if o.GetKind() == "GatewayClass" && !strings.HasPrefix(o.GetName(), "lateen-") {
			t.Errorf("the class %s is another mesh's", o.GetName())
		}
	}
	r, err := render.Chart(charts.FS, "lateen", nil, render.Release{Name: "lateen", Namespace: "lateen-system"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		if o.GetKind() == "GatewayClass" {
			t.Errorf("class %s where nobody knows the kind", o.GetName())
		}
	}
}

func TestVersionsAreTheWorkspaces(t *testing.T) {
	cargo, err := os.ReadFile("../Cargo.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^version = "([^"]+)"`).FindStringSubmatch(string(cargo))[1]
	for _, name := range []string{"lateen", "lateen-crds"} {
		b, err := os.ReadFile(name + "/Chart.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var c struct{ Version, AppVersion string }
		if err := yaml.Unmarshal(b, &c); err != nil || c.Version != want || c.AppVersion != want {
			t.Errorf("%s: version %s, appVersion %s, Cargo.toml %s (%v)", name, c.Version, c.AppVersion, want, err)
		}
	}
}

func TestDefinitions(t *testing.T) {
	count := func(text string) (istio, gateway int) {
		for _, o := range rendered(t, "lateen-crds", values(t, text)).Objects {
			if o.GetKind() == "CustomResourceDefinition" && o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s would be deleted with the release, and all objects of its kind", o.GetName())
			}
			if strings.HasSuffix(o.GetName(), ".istio.io") {
				istio++
			} else {
				gateway++
			}
		}
		return
	}
	if istio, gateway := count("{}"); istio != 15 || gateway != 12 {
		t.Errorf("%d of Istio, %d of the Gateway API", istio, gateway)
	}
	if istio, gateway := count("{gatewayAPI: false}"); istio != 15 || gateway != 0 {
		t.Errorf("without the Gateway API: %d and %d", istio, gateway)
	}
	if istio, gateway := count("{istio: false}"); istio != 0 || gateway != 12 {
		t.Errorf("without Istio's: %d and %d", istio, gateway)
	}
}

func TestNotesNameTheNextStep(t *testing.T) {
	for chart, want := range map[string]string{"lateen": "kubectl label namespace default istio.io/dataplane-mode=ambient", "lateen-crds": "helm install lateen charts/lateen"} {
		if notes := rendered(t, chart, nil).Notes; !strings.Contains(notes, "Next: ") || !strings.Contains(notes, want) {
			t.Errorf("%s: %s", chart, notes)
		}
	}
}

// What a node proxy can reach of its node is the folder of its sockets: the agent's token is in the one above.
func TestTheProxyReachesNothingElseOfItsNode(t *testing.T) {
	spec := podOf(t, rendered(t, "lateen", values(t, everything)).Objects, "DaemonSet", "lateen-node").Spec
	for _, v := range spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path != "/var/run/lateen/proxy" {
			t.Errorf("volume %s is %s of the node", v.Name, v.HostPath.Path)
		}
	}
	agent := podOf(t, rendered(t, "lateen", nil).Objects, "DaemonSet", "lateen-agent").Spec
	if !slices.ContainsFunc(agent.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == "/var/run/lateen" }) {
		t.Error("the agent's folder is not the one above it")
	}
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		t.Error("it is in the node's own namespaces")
	}
}

// Whoever writes pods' status can write labels, annotations and addresses, of any pod: roles cannot say less.
func TestAPolicyNarrowsWhatTheAgentsWrite(t *testing.T) {
	objects := rendered(t, "lateen", nil).Objects
	policy, ok := strict(t, find(t, objects, "ValidatingAdmissionPolicy", "lateen-agent")).(*admissionv1.ValidatingAdmissionPolicy)
	if !ok || *policy.Spec.FailurePolicy != admissionv1.Fail || len(policy.Spec.Validations) < 4 ||
		policy.Spec.MatchConditions[0].Expression != "request.userInfo.username == 'system:serviceaccount:lateen-system:lateen-agent'" {
		t.Errorf("%+v", policy)
	}
	binding, ok := strict(t, find(t, objects, "ValidatingAdmissionPolicyBinding", "lateen-agent")).(*admissionv1.ValidatingAdmissionPolicyBinding)
	if !ok || binding.Spec.PolicyName != policy.Name || !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		t.Errorf("%+v", binding)
	}
}

// The kubelet is let past every policy, so nobody says whom it connects to; a cluster that has to may do without.
func TestProbesThatNameAHostAreRefusedUnlessSwitchedOff(t *testing.T) {
	objects := rendered(t, "lateen", nil).Objects
	policy, ok := strict(t, find(t, objects, "ValidatingAdmissionPolicy", "lateen-probe-hosts")).(*admissionv1.ValidatingAdmissionPolicy)
	if !ok || *policy.Spec.FailurePolicy != admissionv1.Fail {
		t.Fatalf("%+v", policy)
	}
	if policy.Spec.MatchConstraints.NamespaceSelector != nil || policy.Spec.MatchConstraints.ObjectSelector != nil {
		t.Error("a pod outside of the mesh may name a host")
	}
	binding, ok := strict(t, find(t, objects, "ValidatingAdmissionPolicyBinding", "lateen-probe-hosts")).(*admissionv1.ValidatingAdmissionPolicyBinding)
	if !ok || binding.Spec.PolicyName != policy.Name || binding.Spec.MatchResources != nil || !slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		t.Errorf("%+v", binding)
	}
	for _, o := range rendered(t, "lateen", values(t, "{admission: {forbidProbeHosts: false}}")).Objects {
		if o.GetName() == policy.Name {
			t.Errorf("%s %s is there although it is switched off", o.GetKind(), o.GetName())
		}
	}
}
