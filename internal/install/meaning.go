package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/meaning"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// customKind is a kind that a CustomResourceDefinition brings, with the versions that are understood, best first.
type customKind struct {
	group, kind, resource string
	versions              []string
}

var stable = []string{"v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"}

// comparedKinds are those on which this mesh acts.
var comparedKinds = []customKind{
	{model.SecurityGroup, "AuthorizationPolicy", "authorizationpolicies", stable},
	{model.SecurityGroup, "PeerAuthentication", "peerauthentications", stable},
	{model.NetworkGroup, "ServiceEntry", "serviceentries", stable},
	{model.NetworkGroup, "WorkloadEntry", "workloadentries", stable},
	{model.GatewayGroup, "GatewayClass", "gatewayclasses", stable},
	{model.GatewayGroup, "Gateway", "gateways", stable},
}

// unservedKinds are those on which Istio's waypoints, sidecars and gateways act, and no part of this mesh.
var unservedKinds = []customKind{
	{model.NetworkGroup, "VirtualService", "virtualservices", stable},
	{model.NetworkGroup, "DestinationRule", "destinationrules", stable},
	{model.NetworkGroup, "Gateway." + model.NetworkGroup, "gateways", stable},
	{model.NetworkGroup, "Sidecar", "sidecars", stable},
	{model.NetworkGroup, "EnvoyFilter", "envoyfilters", stable},
	{model.NetworkGroup, "ProxyConfig", "proxyconfigs", stable},
	{model.NetworkGroup, "WorkloadGroup", "workloadgroups", stable},
	{model.SecurityGroup, "RequestAuthentication", "requestauthentications", stable},
	{"telemetry.istio.io", "Telemetry", "telemetries", stable},
	{"extensions.istio.io", "WasmPlugin", "wasmplugins", stable},
	{"extensions.istio.io", "TrafficExtension", "trafficextensions", stable},
	{model.GatewayGroup, "HTTPRoute", "httproutes", stable},
	{model.GatewayGroup, "GRPCRoute", "grpcroutes", stable},
	{model.GatewayGroup, "TCPRoute", "tcproutes", stable},
	{model.GatewayGroup, "TLSRoute", "tlsroutes", stable},
}

// remoteClusters selects the Secrets by which istiod reaches other clusters.
const remoteClusters = "istio/multiCluster=true"

// ambientMode is istiod's variable without which there is no ambient mode.
const ambientMode = "PILOT_ENABLE_AMBIENT"

// reading gathers what the comparison needs from a cluster.
type reading struct {
	c    *Cluster
	into *meaning.Cluster
}

// meant compares what the cluster's objects mean to the Istio that runs and to the mesh that would take its place. What may not be read is
// told as such.
func (c *Cluster) meant(ctx context.Context, s *istio, values map[string]any) (*meaning.Report, error) {
	settings, err := settingsOf(values)
	if err != nil {
		return nil, err
	}
	r := &reading{c: c, into: &meaning.Cluster{Settings: settings}}
	for _, read := range []func(context.Context) error{r.core, r.custom, r.unserved} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.istio(ctx, s); err != nil {
		return nil, err
	}
	report := meaning.Compare(r.into)
	if report.Differences == nil {
		report.Differences = []meaning.Difference{} // a list in JSON, too
	}
	return &report, nil
}

// settingsOf are the values of the chart that stand for settings of Istio.
func settingsOf(values map[string]any) (meaning.Settings, error) {
	var v struct {
		Mesh struct {
			TrustDomain        string   `json:"trustDomain"`
			TrustDomainAliases []string `json:"trustDomainAliases"`
			RootNamespace      string   `json:"rootNamespace"`
			ClusterID          string   `json:"clusterID"`
			Network            string   `json:"network"`
		} `json:"mesh"`
		Node struct {
			Env map[string]any `json:"env"`
		} `json:"node"`
		Agent struct {
			DNSCapture bool `json:"dnsCapture"`
		} `json:"agent"`
		Waypoint struct {
			Bind translate.BindMode `json:"bind"`
		} `json:"waypoint"`
	}
	text, err := yaml.Marshal(values)
	if err == nil {
		err = yaml.Unmarshal(text, &v)
	}
	s := meaning.Settings{TrustDomain: v.Mesh.TrustDomain, TrustDomainAliases: v.Mesh.TrustDomainAliases, RootNamespace: v.Mesh.RootNamespace,
		ClusterID: v.Mesh.ClusterID, Network: v.Mesh.Network, DNSCapture: v.Agent.DNSCapture, ProxyEnv: map[string]string{}, BindAtOnce: v.Waypoint.Bind == translate.BindAtOnce}
	for name, value := range v.Node.Env {
		s.ProxyEnv[name] = fmt.Sprint(value)
	}
	return s, err
}

// unread notes what the caller may not read. Any other error ends the reading.
func (r *reading) unread(what string, err error) error {
	if apierrors.IsForbidden(err) {
		r.into.Unread = append(r.into.Unread, fmt.Sprintf("%s: %s, so no difference about them is known", what, kube.Cause(err)))
		return nil
	}
	return r.c.explain(err)
}

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// pages calls for page after page.
func pages(list func(metav1.ListOptions) (next string, err error)) error {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		next, err := list(o)
		if err != nil || next == "" {
			return err
		}
		o.Continue = next
	}
}

// core reads namespaces, pods and Services. Of these only what is compared is kept: there can be many.
func (r *reading) core(ctx context.Context) error {
	core := r.c.Client.CoreV1()
	err := pages(func(o metav1.ListOptions) (string, error) {
		list, err := core.Namespaces().List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			r.into.Namespaces = append(r.into.Namespaces, &list.Items[i])
		}
		return list.Continue, nil
	})
	if err := r.unread("namespaces", err); err != nil {
		return err
	}
	err = pages(func(o metav1.ListOptions) (string, error) {
		list, err := core.Pods(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return "", err
		}
		for _, p := range list.Items {
			r.into.Pods = append(r.into.Pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations},
				Spec:       corev1.PodSpec{HostNetwork: p.Spec.HostNetwork}, Status: corev1.PodStatus{Phase: p.Status.Phase},
			})
		}
		return list.Continue, nil
	})
	if err := r.unread("pods", err); err != nil {
		return err
	}
	err = pages(func(o metav1.ListOptions) (string, error) {
		list, err := core.Services(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			r.into.Services = append(r.into.Services, &list.Items[i])
		}
		return list.Continue, nil
	})
	return r.unread("services", err)
}

// list reads the objects of a kind in the first version that the cluster serves; none if nobody defines the kind.
func (r *reading) list(ctx context.Context, k customKind, each func(*unstructured.Unstructured)) error {
	for _, v := range k.versions {
		client := r.c.Dynamic.Resource(schema.GroupVersionResource{Group: k.group, Version: v, Resource: k.resource})
		err := pages(func(o metav1.ListOptions) (string, error) {
			list, err := client.List(ctx, o)
			if err != nil {
				return "", err
			}
			for i := range list.Items {
				each(&list.Items[i])
			}
			return list.GetContinue(), nil
		})
		if !apierrors.IsNotFound(err) {
			return r.unread(k.resource+"."+k.group, err)
		}
	}
	return nil
}

func (r *reading) custom(ctx context.Context) error {
	for _, k := range comparedKinds {
		if err := r.list(ctx, k, func(o *unstructured.Unstructured) { r.object(k, o) }); err != nil {
			return err
		}
	}
	return nil
}

// object holds an object to the rules of the control plane, and keeps what it makes of it.
func (r *reading) object(k customKind, o *unstructured.Unstructured) {
	key := model.Key{Group: k.group, Kind: k.kind, Namespace: o.GetNamespace(), Name: o.GetName()}
	of := meaning.Object{Kind: k.kind, Namespace: key.Namespace, Name: key.Name}
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	status := o.Object["status"]
	if k.group != model.GatewayGroup {
		delete(o.Object, "status") // no fault of its author's
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		r.into.Refused = append(r.into.Refused, meaning.Refusal{Object: of, Message: err.Error()})
		return
	}
	value, problems := files.Served(key, raw)
	switch value := value.(type) {
	case *securityv1.AuthorizationPolicy:
		r.into.AuthorizationPolicies = append(r.into.AuthorizationPolicies, value)
	case *securityv1.PeerAuthentication:
		r.into.PeerAuthentications = append(r.into.PeerAuthentications, value)
	case *networkingv1.ServiceEntry:
		if text, err := json.Marshal(status); err == nil {
			_ = json.Unmarshal(text, &value.Status) // one that cannot be read has no addresses for the control plane either
		}
		r.into.ServiceEntries = append(r.into.ServiceEntries, value)
	case *networkingv1.WorkloadEntry:
		r.into.WorkloadEntries = append(r.into.WorkloadEntries, value)
	case *gatewayv1.Gateway:
		r.into.Gateways = append(r.into.Gateways, value)
	case *gatewayv1.GatewayClass:
		r.into.GatewayClasses = append(r.into.GatewayClasses, value)
	default:
		class, _, _ := unstructured.NestedString(o.Object, "spec", "gatewayClassName")
		if k.group == model.GatewayGroup && !strings.HasPrefix(class, istioClasses) {
			return // somebody else's
		}
		_, effect := files.Strictest(key, raw)
		r.into.Refused = append(r.into.Refused, refusal(of, problems, effect))
	}
}

func refusal(of meaning.Object, problems []files.Problem, effect string) meaning.Refusal {
	out := meaning.Refusal{Object: of, Effect: effect, Message: "it cannot be read"}
	for _, p := range problems {
		if p.Severity == files.Refused {
			out.Field, out.Message = p.Field, strings.TrimSuffix(p.Message+"; "+p.Fix, "; ")
			break
		}
	}
	return out
}

func (r *reading) unserved(ctx context.Context) error {
	istios := map[string]bool{}
	for _, g := range r.into.Gateways {
		istios[g.Namespace+"/"+g.Name] = r.isIstios(g)
	}
	for _, k := range unservedKinds {
		err := r.list(ctx, k, func(o *unstructured.Unstructured) {
			if k.group != model.GatewayGroup || routesFor(o, istios) {
				r.into.Unserved = append(r.into.Unserved, meaning.Object{Kind: k.kind, Namespace: o.GetNamespace(), Name: o.GetName()})
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// istioClasses is how the names of Istio's GatewayClasses begin.
const istioClasses = "istio"

// isIstios says whether Istio runs a Gateway: by its class's controller, or a class of Istio's name where the class is not there.
func (r *reading) isIstios(g *gatewayv1.Gateway) bool {
	for _, class := range r.into.GatewayClasses {
		if class.Name == string(g.Spec.GatewayClassName) {
			return strings.HasPrefix(string(class.Spec.ControllerName), wellknown.IstioControllers)
		}
	}
	return strings.HasPrefix(string(g.Spec.GatewayClassName), istioClasses)
}

// routesFor says whether a route is for Services or for a Gateway of Istio's, and not for somebody else's.
func routesFor(o *unstructured.Unstructured, istios map[string]bool) bool {
	parents, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
	for _, one := range parents {
		parent, _ := one.(map[string]any)
		text := func(field, otherwise string) string {
			value, _ := parent[field].(string)
			return cmp.Or(value, otherwise)
		}
		switch kind := text("kind", "Gateway"); {
		case kind == "Gateway" && istios[text("namespace", o.GetNamespace())+"/"+text("name", "")]:
			return true
		case kind == "Service" || kind == "ServiceEntry":
			return true
		}
	}
	return false
}

// istio reads what is set about Istio itself.
func (r *reading) istio(ctx context.Context, s *istio) error {
	for _, d := range s.control {
		p := r.program(meaning.Object{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name}, d.Spec.Template.Spec, "discovery")
		r.into.Control = append(r.into.Control, p)
		if err := r.meshConfig(ctx, d.Namespace, p.Env["REVISION"]); err != nil {
			return err
		}
	}
	for _, d := range s.ztunnels {
		r.into.Proxies = append(r.into.Proxies, r.program(meaning.Object{Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name}, d.Spec.Template.Spec, "istio-proxy"))
	}
	secrets, err := r.c.Client.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: remoteClusters})
	if err != nil {
		return r.unread("secrets of other clusters in namespace "+s.namespace, err)
	}
	for _, secret := range secrets.Items {
		r.into.RemoteClusters = append(r.into.RemoteClusters, meaning.Object{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name})
	}
	return nil
}

// meshConfig reads the MeshConfig of a revision of istiod.
func (r *reading) meshConfig(ctx context.Context, namespace, revision string) error {
	name := "istio"
	if revision != "" && revision != "default" {
		name += "-" + revision
	}
	m, err := r.c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	of := meaning.Object{Kind: "ConfigMap", Namespace: namespace, Name: name}
	switch {
	case apierrors.IsNotFound(err):
		r.into.Unread = append(r.into.Unread, fmt.Sprintf("the MeshConfig: there is no %s, so no field of it is judged", of))
		return nil
	case err != nil:
		return r.unread("the MeshConfig in "+of.String(), err)
	}
	read := meaning.MeshConfig{Object: of, Mesh: m.Data["mesh"], Networks: m.Data["meshNetworks"]}
	for _, had := range r.into.MeshConfigs {
		if had.Object == of {
			return nil // of another istiod of the same revision
		}
	}
	r.into.MeshConfigs = append(r.into.MeshConfigs, read)
	return nil
}

// program reads the environment of a container, of the first where none has the name.
func (r *reading) program(of meaning.Object, pod corev1.PodSpec, container string) meaning.Program {
	p := meaning.Program{Object: of, Env: map[string]string{}, Hidden: map[string]string{}}
	if len(pod.Containers) == 0 {
		return p
	}
	c := pod.Containers[max(0, slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == container }))]
	p.Image = c.Image
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			p.Hidden[e.Name] = whence(e.ValueFrom)
		} else {
			p.Env[e.Name] = e.Value
		}
	}
	for _, from := range c.EnvFrom {
		if _, ok := p.Env[ambientMode]; !ok {
			p.Hidden[ambientMode] = bundle(from)
		}
		r.into.Unread = append(r.into.Unread, fmt.Sprintf("variables that %s takes from %s, so they are not judged", of, bundle(from)))
	}
	return p
}

// whence names where the value of a variable stands.
func whence(from *corev1.EnvVarSource) string {
	switch {
	case from.ConfigMapKeyRef != nil:
		return "ConfigMap " + from.ConfigMapKeyRef.Name
	case from.SecretKeyRef != nil:
		return "Secret " + from.SecretKeyRef.Name
	}
	return "a field of the pod"
}

func bundle(from corev1.EnvFromSource) string {
	switch {
	case from.ConfigMapRef != nil:
		return "ConfigMap " + from.ConfigMapRef.Name
	case from.SecretRef != nil:
		return "Secret " + from.SecretRef.Name
	}
	return "elsewhere"
}

// compareMeaning says in the plan what would mean something else. A difference that decides access and that no object can undo refuses the take-over
// unless it is accepted by name; a dry run shows all of it first.
func (i *Installation) compareMeaning(ctx context.Context, s *istio) error {
	report, err := i.cluster.meant(ctx, s, i.want.merged)
	if err != nil {
		return err
	}
	for _, name := range report.Accept(i.options.AcceptDifferences) {
		i.Plan.Warnings = append(i.Plan.Warnings, fmt.Sprintf("--accept-difference=%s: no difference of this name refuses the take-over, so that the flag has no effect", name))
	}
	i.Plan.Meaning = report
	if refused := refuseMeaning(report.Refusing()); refused != nil && !i.options.DryRun {
		return refused
	} else if refused != nil {
		i.Plan.Refused, i.refusal = refused.Error(), refused
	}
	if !i.options.DryRun {
		i.warnOfMeaning(report)
	}
	return nil
}

// refuseMeaning turns differences into an error that names them and the fixes.
func refuseMeaning(refusing []meaning.Difference) error {
	if len(refusing) == 0 {
		return nil
	}
	var what, fixes []string
	for _, d := range refusing {
		what = append(what, fmt.Sprintf("%s of %s (today %s; then %s)", d.Named(), d.Object, d.Today, d.Then))
		if len(d.Keep) == 1 && strings.HasPrefix(d.Keep[0], "--") {
			fixes = append(fixes, d.Keep[0])
		} else {
			fixes = append(fixes, "--accept-difference="+d.Named())
		}
	}
	return &api.Error{Code: 409, Message: "Istio's settings decide access, and this mesh would not go by them: " + strings.Join(what, "; "),
		Fix: "lateen install --take-over=istio --dry-run shows what to change first; then add " + strings.Join(slices.Compact(fixes), " ")}
}

// dryRunCommand shows the differences.
const dryRunCommand = "lateen install --take-over=istio --dry-run"

// warnOfMeaning counts the differences that decide access, before they come about.
func (i *Installation) warnOfMeaning(report *meaning.Report) {
	opens, closes := report.Count(meaning.AccessOpens), report.Count(meaning.AccessCloses)
	if opens+closes > 0 {
		i.Plan.Warnings = append(i.Plan.Warnings, fmt.Sprintf("access changes with the take-over: %d differences open it, %d close it; %s names them", opens, closes, dryRunCommand))
	}
	if n := len(report.Unread); n > 0 {
		i.Plan.Warnings = append(i.Plan.Warnings, fmt.Sprintf("the comparison with Istio is not whole: %d things could not be read or judged; %s names them", n, dryRunCommand))
	}
}
