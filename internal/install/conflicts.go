package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Conflict is something in the cluster that manages the labels which the mesh would manage.
type Conflict struct {
	// Mesh is whose it is: "Istio" or "Lateen".
	Mesh string `json:"mesh"`
	What string `json:"what"`
	// Where is the namespace; empty for what belongs to the whole cluster.
	Where string `json:"where,omitempty"`
	Role  string `json:"role"`
	// Unsure says that it only looks like one. Labels and names are whatever somebody with a namespace writes; without rights in the cluster
	// it manages nothing.
	Unsure bool `json:"unsure,omitempty"`

	name    string
	daemons *appsv1.DaemonSet // it, if it is one
}

// thing is something in the cluster as a conflict names it.
type thing struct{ What, Where string }

// String is the conflict as a sentence's part.
func (c Conflict) String() string {
	if c.Where == "" {
		return fmt.Sprintf("%s (%s)", c.What, c.Role)
	}
	return fmt.Sprintf("%s in namespace %s (%s)", c.What, c.Where, c.Role)
}

func (c Conflict) isIstio() bool { return c.Mesh == "Istio" && !c.Unsure }

// among says whether it is one of those that somebody has named.
func (c Conflict) among(names []string) bool {
	return slices.Contains(names, strings.TrimPrefix(c.Where+"/"+c.name, "/"))
}

// conflictSearch finds the control planes that manage the same labels.
type conflictSearch struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	server  apiServer
}

func (c *Cluster) conflictSearch() conflictSearch {
	return conflictSearch{client: c.Client, dynamic: c.Dynamic, server: apiServer(c.Host)}
}

// Conflicts looks for control planes that manage the same labels: Istio's parts in any namespace, its webhooks, and another Lateen than
// that in the namespace.
func (c *Cluster) Conflicts(ctx context.Context, o Options) ([]Conflict, error) {
	found, _, err := c.conflictSearch().conflicts(ctx, o)
	return found, err
}

// conflicts says as well which of those that somebody has named there are none of.
func (c conflictSearch) conflicts(ctx context.Context, o Options) (conflicts []Conflict, unknown []string, err error) {
	found, err := c.conflictingWorkloads(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	hooks, err := c.conflictingHooks(ctx)
	if err != nil {
		return nil, nil, err
	}
	found = append(found, hooks...)
	for _, name := range o.IgnoreConflicts {
		if !slices.ContainsFunc(found, func(f Conflict) bool { return f.among([]string{name}) }) {
			unknown = append(unknown, name)
		}
	}
	found = slices.DeleteFunc(found, func(f Conflict) bool { return f.among(o.IgnoreConflicts) })
	classes, err := c.classes(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Classes alone harm nobody: they stay behind when Istio goes.
	if slices.ContainsFunc(found, Conflict.isIstio) {
		found = append(found, classes...)
	}
	return found, unknown, nil
}

// ownedByAdministrators are namespaces in which, beside that of mesh-wide policies, nobody else can make anything.
var ownedByAdministrators = []string{metav1.NamespaceSystem}

func (c conflictSearch) conflictingWorkloads(ctx context.Context, o Options) ([]Conflict, error) {
	rightsOf, err := c.rightsOf(ctx)
	if err != nil {
		return nil, err
	}
	trusted := append([]string{rootNamespace(o.Values)}, ownedByAdministrators...)
	var found []Conflict
	add := func(mesh, kind, what string, m metav1.ObjectMeta, pod corev1.PodSpec, enough func(rights) bool) *Conflict {
		found = append(found, Conflict{Mesh: mesh, What: kind + m.Name, Where: m.Namespace, Role: what, name: m.Name,
			Unsure: !enough(rightsOf(m.Namespace, cmp.Or(pod.ServiceAccountName, "default"))) && !slices.Contains(trusted, m.Namespace)})
		return &found[len(found)-1]
	}
	deployments, err := c.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app in (istiod,lateen-control)"})
	if err != nil {
		return nil, c.server.explain(err)
	}
	for _, d := range deployments.Items {
		switch {
		case d.Labels["app"] == "istiod" && replicas(d.Spec.Replicas) > 0:
			add("Istio", deploymentPrefix, "Istio's control plane", d.ObjectMeta, d.Spec.Template.Spec, rights.control)
		case d.Labels["app"] == "lateen-control" && d.Namespace != o.Namespace:
			add("Lateen", deploymentPrefix, "another Lateen's control plane", d.ObjectMeta, d.Spec.Template.Spec, rights.control)
		}
	}
	daemons, err := c.client.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	for i := range daemons.Items {
		switch d := &daemons.Items[i]; {
		case isZtunnel(d.ObjectMeta):
			add("Istio", daemonSetPrefix, "Istio's node proxies", d.ObjectMeta, d.Spec.Template.Spec, rights.capture).daemons = d
		case isIstioCNI(d.ObjectMeta):
			add("Istio", daemonSetPrefix, "captures pods for Istio", d.ObjectMeta, d.Spec.Template.Spec, rights.capture).daemons = d
		}
	}
	// Istio's node proxies need no rights; they are told by the control plane beside them.
	for i := range found {
		if f := &found[i]; f.Unsure && f.daemons != nil {
			f.Unsure = !slices.ContainsFunc(found, func(x Conflict) bool { return x.Where == f.Where && x.isIstio() })
		}
	}
	return found, nil
}

func isZtunnel(m metav1.ObjectMeta) bool {
	// Newer charts label what is in the DaemonSet with app, and the DaemonSet itself with its name.
	return m.Name == ztunnelName || m.Labels["app"] == ztunnelName || m.Labels[wellknown.AppName] == ztunnelName
}

func isIstioCNI(m metav1.ObjectMeta) bool {
	return m.Name == istioCNIName || m.Labels["k8s-app"] == istioCNIName
}

// conflictingHooks are Istio's webhooks. Only administrators can make any.
func (c conflictSearch) conflictingHooks(ctx context.Context) ([]Conflict, error) {
	var found []Conflict
	mutating, err := c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	for _, w := range mutating.Items {
		if strings.HasPrefix(w.Name, "istio-sidecar-injector") || w.Labels["app"] == "sidecar-injector" || strings.HasPrefix(w.Name, "istio-revision-tag") {
			found = append(found, Conflict{Mesh: "Istio", What: mutatingPrefix + w.Name, Role: "puts sidecars into pods", name: w.Name})
		}
	}
	validating, err := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	for _, w := range validating.Items {
		if strings.HasPrefix(w.Name, "istio-validator") || strings.HasPrefix(w.Name, "istiod-") || w.Labels["app"] == "istiod" {
			found = append(found, Conflict{Mesh: "Istio", What: validatingPrefix + w.Name, Role: "judges mesh objects", name: w.Name})
		}
	}
	return found, nil
}

// Prefixes that name the kind of a conflicting thing.
const (
	deploymentPrefix = "Deployment "
	daemonSetPrefix  = "DaemonSet "
	classPrefix      = "GatewayClass "
	mutatingPrefix   = "MutatingWebhookConfiguration "
	validatingPrefix = "ValidatingWebhookConfiguration "
)

// Names of Istio's parts.
const (
	ztunnelName  = "ztunnel"
	istioCNIName = "istio-cni-node"
	istiodName   = "istiod"
)

// classes are the GatewayClasses whose Gateways Istio runs.
func (c conflictSearch) classes(ctx context.Context) ([]Conflict, error) {
	list, err := c.dynamic.Resource(resources["GatewayClass"].GroupVersionResource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, c.server.explain(err)
	}
	var found []Conflict
	for _, o := range list.Items {
		spec, _ := o.Object["spec"].(map[string]any)
		controller, _ := spec["controllerName"].(string)
		if domain, _, _ := strings.Cut(controller, "/"); domain == "istio.io" {
			found = append(found, Conflict{Mesh: "Istio", What: classPrefix + o.GetName(), Role: "controlled by " + controller, name: o.GetName()})
		}
	}
	return found, nil
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// refuse turns conflicts into an error that names them and the fix.
func refuse(found []Conflict) error {
	var names []string
	whose := map[string]bool{}
	for _, f := range found {
		if !f.Unsure {
			names = append(names, f.String())
			whose[f.Mesh] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	fix := "have this mesh take its place with lateen install --take-over=istio, or uninstall Istio first (istioctl uninstall --purge)"
	if whose["Lateen"] {
		fix = "go on with that one (lateen upgrade --namespace), or remove it first (lateen uninstall --namespace)"
	}
	return &api.Error{Code: 409, Message: "another control plane manages the same labels: " + strings.Join(names, "; "), Fix: fix + "; if it is no part of a mesh, say so with --ignore-conflict=NAMESPACE/NAME (NAME alone, of what is in no namespace)"}
}

// rootsAreFree refuses an installation whose node proxies would go by the root certificate of a mesh that is gone: the control plane leaves
// alone what another one keeps, and they would wait for ever.
func (c conflictSearch) rootsAreFree(ctx context.Context, o Options) error {
	if o.TakeOver != "" {
		return nil
	}
	m, err := c.client.CoreV1().ConfigMaps(o.Namespace).Get(ctx, rootCertificate, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return c.server.explain(err)
	}
	if _, istios := m.Labels[wellknown.IstioConfig]; !istios {
		return nil
	}
	return &api.Error{Code: 409, Message: fmt.Sprintf("ConfigMap %s/%s is Istio's (label %s): the control plane leaves it alone, and node proxies that read it would trust Istio's CA in place of this mesh's", o.Namespace, rootCertificate, wellknown.IstioConfig),
		Fix: fmt.Sprintf("if it is left over from an Istio that is gone, kubectl delete configmap -n %s %s; else choose another --namespace", o.Namespace, rootCertificate)}
}
