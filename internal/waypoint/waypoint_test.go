package waypoint

import (
	"cmp"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

// gateway reads a Gateway from YAML; its name, class and listener are given.
func gateway(t *testing.T, text string) *gatewayv1.Gateway {
	t.Helper()
	gw := &gatewayv1.Gateway{}
	if err := yaml.UnmarshalStrict([]byte(text), gw); err != nil {
		t.Fatal(err)
	}
	gw.Namespace = "shop"
	if gw.Name == "" {
		gw.Name = "waypoint"
	}
	gw.UID = "uid-1"
	if gw.Spec.GatewayClassName == "" {
		gw.Spec.GatewayClassName = Class
	}
	if gw.Spec.Listeners == nil {
		gw.Spec.Listeners = []gatewayv1.Listener{{Name: "mesh", Port: 15008, Protocol: "HBONE"}}
	}
	return gw
}

func settings() Settings {
	return Settings{Image: "docker.io/lateen/proxy:0.1.0", PullPolicy: corev1.PullIfNotPresent, PullSecrets: []string{"registry"}, Control: "https://lateen-control.lateen-system.svc:15012",
		TrustDomain: "cluster.local", ClusterID: "Kubernetes", ClusterDomain: "cluster.local", LogLevel: "info", LogFormat: "text", Version: "0.1.0",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}}
}

func parameters(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

const byReference = `spec: {infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: options}}}`

func TestObjects(t *testing.T) {
	for name, in := range map[string]Input{
		"plain": {Gateway: gateway(t, `metadata: {labels: {istio.io/waypoint-for: all}, annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", team: a}}`)},
		"account": {Gateway: gateway(t, `
metadata: {annotations: {gateway.istio.io/service-account: shop-waypoint}}
spec: {infrastructure: {labels: {team: a, istio.io/dataplane-mode: ambient}, annotations: {note: b}}, listeners: [{name: mesh, port: 15008, protocol: HBONE}, {name: a.b, port: 15088, protocol: istio.io/PROXY}]}`)},
		"overlays": {Gateway: gateway(t, byReference),
			Parameters: parameters("shop", "options", map[string]string{
				"deployment":              "spec: {replicas: 2, template: {spec: {terminationGracePeriodSeconds: 300, containers: [{name: istio-proxy, resources: {limits: {memory: 2Gi}}}]}}}",
				"service":                 "spec: {type: LoadBalancer}",
				"serviceAccount":          "metadata: {annotations: {role: reader}}",
				"horizontalPodAutoscaler": "spec: {minReplicas: 2, maxReplicas: 5}",
				"podDisruptionBudget":     "spec: {maxUnavailable: 1}",
			}),
			Defaults: []corev1.ConfigMap{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "younger", CreationTimestamp: metav1.NewTime(time.Unix(20, 0))}, Data: map[string]string{"service": "spec: {type: NodePort}"}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "older", CreationTimestamp: metav1.NewTime(time.Unix(10, 0))},
					Data: map[string]string{"deployment": "spec: {replicas: 7, template: {spec: {nodeSelector: {pool: mesh}, containers: [{name: istio-proxy, env: [{name: RUST_LOG, value: debug}]}]}}}"}},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			in.Settings = settings()
			objects, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := objects.Manifests()
			if err != nil {
				t.Fatal(err)
			}
			var text []string
			for _, m := range manifests {
				b, err := yaml.Marshal(m.Object)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, string(b))
			}
			golden(t, name+".yaml", strings.Join(text, "---\n"))
		})
	}
}

func TestAnAccountThatTheGatewayNamesIsNotMade(t *testing.T) {
	for account, made := range map[string]bool{"": true, "waypoint": false, "other": false} {
		gw := gateway(t, "metadata: {annotations: {gateway.istio.io/service-account: '"+account+"'}}")
		objects, err := Build(Input{Gateway: gw, Settings: settings()})
		if err != nil {
			t.Fatal(err)
		}
		if (objects.ServiceAccount != nil) != made {
			t.Errorf("account %q: made is %+v", account, objects.ServiceAccount)
		}
		if got := objects.Deployment.Spec.Template.Spec.ServiceAccountName; got != cmp.Or(account, "waypoint") {
			t.Errorf("account %q: the pods run as %q", account, got)
		}
	}
}

// A waypoint is not ready without the control plane, and no restart changes that: a pod in CrashLoopBackOff would come back minutes after it.
func TestNoProbeRestartsAWaypointThatWaits(t *testing.T) {
	objects, err := Build(Input{Gateway: gateway(t, ""), Settings: settings()})
	if err != nil {
		t.Fatal(err)
	}
	c := objects.Deployment.Spec.Template.Spec.Containers[0]
	if c.LivenessProbe != nil {
		t.Errorf("it has a liveness probe: %v", c.LivenessProbe)
	}
	const patience = 365 * 24 * time.Hour
	if p := c.StartupProbe; p != nil && time.Duration(p.PeriodSeconds)*time.Second*time.Duration(p.FailureThreshold) < patience {
		t.Errorf("it is restarted after %d probes, one each %d s", p.FailureThreshold, p.PeriodSeconds)
	}
}

// A caller that applies a number of replicas again and again overwrites the autoscaler's.
func TestAnAutoscalerAloneDecidesHowManyPodsThereAre(t *testing.T) {
	for scaled, want := range map[bool]bool{false: true, true: false} {
		data := map[string]string{"deployment": "spec: {replicas: 2}"}
		if scaled {
			data["horizontalPodAutoscaler"] = "spec: {maxReplicas: 5}"
		}
		objects, err := Build(Input{Gateway: gateway(t, byReference), Settings: settings(), Parameters: parameters("shop", "options", data)})
		if err != nil {
			t.Fatal(err)
		}
		manifests, err := objects.Manifests()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range manifests {
			if spec, _ := m.Object["spec"].(map[string]any); m.GetKind() == "Deployment" && (spec["replicas"] != nil) != want {
				t.Errorf("with an autoscaler: %t; replicas are %v", scaled, spec["replicas"])
			}
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run the test with -update if the change is meant\n%s", path, got)
	}
}

func TestWhatIsWrongIsRefusedWithItsCure(t *testing.T) {
	with := func(key, value string) *corev1.ConfigMap {
		return parameters("shop", "options", map[string]string{key: value})
	}
	pod := func(text string) *corev1.ConfigMap { return with("deployment", "spec: {template: {spec: "+text+"}}") }
	container := func(text string) *corev1.ConfigMap {
		return pod("{containers: [{name: istio-proxy, " + text + "}]}")
	}
	for name, c := range map[string]struct {
		gateway    string
		parameters *corev1.ConfigMap
		reason     string
		says       []string
	}{
		"no listeners":      {"spec: {listeners: []}", nil, ReasonInvalid, []string{"Gateway shop/waypoint: spec.listeners is empty", "add {name: mesh, port: 15008, protocol: HBONE}"}},
		"no HBONE port":     {"spec: {listeners: [{name: a, port: 80, protocol: HTTP}]}", nil, ReasonInvalid, []string{"spec.listeners has none with port 15008", "add {name: mesh, port: 15008"}},
		"name of no object": {"metadata: {name: 1.a}", nil, ReasonInvalid, []string{`metadata.name is "1.a"`, "give the Gateway another name"}},
		"override":          {"metadata: {annotations: {gateway.istio.io/name-override: x}}", nil, ReasonInvalid, []string{"gateway.istio.io/name-override", "remove the annotation"}},
		"account":           {"metadata: {annotations: {gateway.istio.io/service-account: A B}}", nil, ReasonInvalid, []string{`is "A B"`, "correct it"}},
		"parameters absent": {byReference, nil, ReasonParameters, []string{"names ConfigMap shop/options, which does not exist", "create it or correct the name"}},
		"another kind":      {`spec: {infrastructure: {parametersRef: {group: x.io, kind: Thing, name: a}}}`, nil, ReasonParameters, []string{"means a Thing of group", "name a ConfigMap"}},
		"unknown key":       {byReference, with("daemonset", "{}"), ReasonParameters, []string{`ConfigMap shop/options: key "daemonset"`, "use deployment, service"}},
		"no YAML":           {byReference, with("deployment", "a: ["), ReasonParameters, []string{"ConfigMap shop/options: key deployment: it is not YAML", "correct it"}},
		"no object":         {byReference, with("service", "7"), ReasonParameters, []string{"key service: it is no object but 7"}},
		"unknown field":     {byReference, with("service", "spec: {tpye: NodePort}"), ReasonParameters, []string{`key service`, `unknown field "spec.tpye"`}},
		"wrong type":        {byReference, with("deployment", "spec: {replicas: many}"), ReasonParameters, []string{"key deployment"}},
		"another name":      {byReference, with("service", "metadata: {name: other}"), ReasonParameters, []string{"key service changes the object's name", "leave it out"}},
		"owners":            {byReference, with("deployment", "metadata: {ownerReferences: null}"), ReasonParameters, []string{"owner"}},
		"selector":          {byReference, with("service", "spec: {selector: {app: x}}"), ReasonParameters, []string{"key service changes spec.selector"}},
		"captured":          {byReference, with("deployment", "spec: {template: {metadata: {labels: {istio.io/dataplane-mode: ambient}}}}"), ReasonParameters, []string{"labels.istio.io/dataplane-mode"}},
		"another account":   {byReference, pod("{serviceAccountName: admin}"), ReasonParameters, []string{"spec.template.spec.serviceAccountName", "gateway.istio.io/service-account"}},
		"no proxy":          {byReference, pod("{containers: [{name: istio-proxy, $patch: delete}, {name: a, image: a}]}"), ReasonParameters, []string{"removes container istio-proxy"}},
		"host network":      {byReference, pod("{hostNetwork: true}"), ReasonParameters, []string{"sets spec.template.spec.hostNetwork", "leave it out"}},
		"host path":         {byReference, pod("{volumes: [{name: a, hostPath: {path: /}}]}"), ReasonParameters, []string{"spec.volumes[0]"}},
		"privileged":        {byReference, container("securityContext: {privileged: true}"), ReasonParameters, []string{"containers[istio-proxy].securityContext.privileged"}},
		"capabilities":      {byReference, container("securityContext: {capabilities: {add: [NET_ADMIN]}}"), ReasonParameters, []string{"securityContext.capabilities"}},
		"root":              {byReference, container("securityContext: {runAsUser: 0}"), ReasonParameters, []string{"securityContext.runAsUser"}},
		"host port":         {byReference, container("ports: [{containerPort: 15008, hostPort: 15008}]"), ReasonParameters, []string{"ports.hostPort"}},
		"a second container": {byReference, pod("{containers: [{name: a, image: a}]}"), ReasonParameters,
			[]string{"containers[a].securityContext.allowPrivilegeEscalation"}},
		"scaled by others": {byReference, with("horizontalPodAutoscaler", "spec: {scaleTargetRef: {kind: Deployment, name: x}}"), ReasonParameters, []string{"spec.scaleTargetRef"}},
		"budget of others": {byReference, with("podDisruptionBudget", "spec: {selector: {matchLabels: {a: b}}}"), ReasonParameters, []string{"spec.selector"}},
		"account of others": {"metadata: {annotations: {gateway.istio.io/service-account: other}}\n" + byReference, with("serviceAccount", "metadata: {labels: {a: b}}"), ReasonParameters,
			[]string{"key serviceAccount has no effect", "remove one of them"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Gateway: gateway(t, c.gateway), Parameters: c.parameters, Settings: settings()}
			if name == "no listeners" {
				in.Gateway.Spec.Listeners = nil
			}
			_, err := Build(in)
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Reason != c.reason {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.says {
				if !strings.Contains(refusal.Message, want) {
					t.Errorf("%q does not say %q", refusal.Message, want)
				}
			}
		})
	}
}

// An overlay may add what a namespace of the level restricted admits.
func TestAnOverlayMayAddContainersThatAreRestricted(t *testing.T) {
	in := Input{Gateway: gateway(t, byReference), Settings: settings(), Parameters: parameters("shop", "options", map[string]string{"deployment": `
spec: {template: {spec: {containers: [{name: more, image: more, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}}`})}
	objects, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(objects.Deployment.Spec.Template.Spec.Containers); n != 2 {
		t.Errorf("%d containers", n)
	}
}

func TestTheClassDecidesWhatIsDeployed(t *testing.T) {
	class := func(controller string) *gatewayv1.GatewayClass {
		return &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)}}
	}
	for _, c := range []struct {
		name   string
		object *gatewayv1.GatewayClass
		istio  bool
		want   bool
	}{
		{Class, nil, false, true},
		{Class, class("lateen.dev/waypoint-controller"), false, true},
		{"own", class("lateen.dev/waypoint-controller"), false, true},
		{Class, class("example.com/other"), true, false},
		{IstioClass, nil, false, false},
		{IstioClass, nil, true, true},
		{IstioClass, class("istio.io/mesh-controller"), false, false},
		{IstioClass, class("istio.io/mesh-controller"), true, true},
		{"istio", nil, true, false},
		{"istio-remote", nil, true, false},
	} {
		if got := Serves(c.name, c.object, c.istio); got != c.want {
			t.Errorf("class %s, %v, istio %v: %v", c.name, c.object, c.istio, got)
		}
	}
}

func TestAGatewayThatNamesAHostIsServedByOthers(t *testing.T) {
	for text, want := range map[string]bool{
		"{}":                                    true,
		"spec: {addresses: [{value: 1.2.3.4}]}": true,
		"spec: {addresses: [{type: Hostname, value: a.shop.svc}]}": false,
		"spec: {addresses: [{value: 1.2.3.4}, {value: 1.2.3.5}]}":  false,
	} {
		if got := Deployed(gateway(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// ConfigMaps are written by people.
func FuzzOverlay(f *testing.F) {
	for _, seed := range []string{"spec: {replicas: 2}", "{", "7", "spec: {template: {spec: {containers: [{name: istio-proxy, $patch: delete}]}}}", "metadata: {labels: {a: null}}", "$patch: replace", "$setElementOrder/containers: [a]"} {
		f.Add(seed)
	}
	gw := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "waypoint", UID: "u"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: Class,
		Listeners: []gatewayv1.Listener{{Name: "mesh", Port: 15008, Protocol: "HBONE"}}, Infrastructure: &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{Kind: "ConfigMap", Name: "options"}}}}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := Build(Input{Gateway: gw, Settings: settings(), Parameters: parameters("shop", "options", map[string]string{"deployment": text, "service": text})})
		var refusal *Refusal
		switch {
		case err == nil:
			if objects.Deployment.Name != gw.Name || objects.Deployment.Spec.Template.Spec.ServiceAccountName != gw.Name || unrestricted(&objects.Deployment.Spec.Template.Spec) != "" {
				t.Errorf("%q made %+v", text, objects.Deployment)
			}
		case !errors.As(err, &refusal):
			t.Errorf("%q: %v", text, err)
		}
	})
}
