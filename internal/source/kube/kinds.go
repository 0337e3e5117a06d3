package kube

import (
	"fmt"
	"slices"

	networkingapi "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// kind is one kind of object that the mesh reads from an API server.
type kind struct {
	group, name, resource string
	// versions are those that are understood, best first. They are alike but for their names.
	versions []string
	// custom says that a CustomResourceDefinition brings the kind, so that it may be missing, come and go.
	custom bool
	// labels is the label selector of what is watched.
	labels string
	// mostLabels is how many bytes the labels of an object may have; 0 if that does not matter. One with more is not taken, nor does the version
	// before it stay.
	mostLabels int
	// fields is the field selector of what is watched. A kind that has one is watched in the mesh's root namespace alone.
	fields string
	// stays says that of an object of which the present version is refused the version before stays, as it does of a custom kind.
	stays bool
	// example tells what comes over a watch.
	example runtime.Object
	// final writes into a version of an object what the version before it has settled for good; nil if nothing is.
	final func(before, now any)
	// read makes what is kept of an object, and says what is wrong with it.
	read func(k *kind, in *interner, object runtime.Object, to *reading)
}

var istioVersions = []string{"v1", "v1beta1"}

// kinds are all kinds that the compiler follows. Secrets are none of them.
var kinds = []*kind{
	{name: "Namespace", resource: "namespaces", versions: []string{"v1"}, example: &corev1.Namespace{}, read: core(namespace)},
	{name: "Node", resource: "nodes", versions: []string{"v1"}, example: &corev1.Node{}, read: core(node)},
	{name: "Service", resource: "services", versions: []string{"v1"}, example: &corev1.Service{}, read: core(service)},
	{name: "Pod", resource: "pods", versions: []string{"v1"}, example: &corev1.Pod{}, read: core(pod), final: endedPodStaysEnded, mostLabels: maxPodLabels},
	// Those of Services with selectors say nothing that their pods do not say earlier, and change with each of them.
	{group: model.DiscoveryGroup, name: "EndpointSlice", resource: "endpointslices", versions: []string{"v1"}, example: &discoveryv1.EndpointSlice{},
		labels: discoveryv1.LabelManagedBy + "!=" + model.EndpointSliceController, read: core(endpointSlice)},

	// The mesh's settings.
	{name: "ConfigMap", resource: "configmaps", versions: []string{"v1"}, example: &corev1.ConfigMap{}, fields: "metadata.name=" + meshconfig.ObjectName, stays: true, read: readMeshConfig},

	custom(model.SecurityGroup, "AuthorizationPolicy", "authorizationpolicies", istioVersions...),
	custom(model.SecurityGroup, "PeerAuthentication", "peerauthentications", istioVersions...),
	custom(model.SecurityGroup, "RequestAuthentication", "requestauthentications", istioVersions...),
	custom(model.NetworkGroup, "ServiceEntry", "serviceentries", append(slices.Clone(istioVersions), "v1alpha3")...),
	custom(model.NetworkGroup, "WorkloadEntry", "workloadentries", append(slices.Clone(istioVersions), "v1alpha3")...),
	custom(model.GatewayGroup, "Gateway", "gateways", istioVersions...),
	custom(model.GatewayGroup, "GatewayClass", "gatewayclasses", istioVersions...),
}

// crds is the kind by whose objects it is known which of the others there are. Only their names are read.
var crds = &kind{group: "apiextensions.k8s.io", name: "CustomResourceDefinition", resource: "customresourcedefinitions", versions: []string{"v1"}}

// Reads lists what a source must be allowed to list and watch in all namespaces. Beside that it follows the ConfigMap of the mesh's settings.
func Reads() []schema.GroupResource {
	var all []schema.GroupResource
	for _, k := range append([]*kind{crds}, kinds...) {
		if k.fields != "" {
			continue
		}
		all = append(all, schema.GroupResource{Group: k.group, Resource: k.resource})
	}
	return all
}

func custom(group, name, resource string, versions ...string) *kind {
	return &kind{group: group, name: name, resource: resource, versions: versions, custom: true, example: &unstructured.Unstructured{}, read: readCustom}
}

// fullName is the kind's name in the API server, which is that of its CustomResourceDefinition: "gateways.gateway.networking.k8s.io".
func (k *kind) fullName() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

func (k *kind) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource}
}

func (k *kind) apiVersion(version string) string {
	return schema.GroupVersion{Group: k.group, Version: version}.String()
}

func (k *kind) key(namespace, name string) model.Key {
	return model.Key{Group: k.group, Kind: k.name, Namespace: namespace, Name: name}
}

// maxPodLabels bounds what is kept of a pod's labels, of which each replica has those of every pod, also of one that never runs. It is hundreds
// of the longest. Which of them a selector asks for is not known here, and a policy whose label is left out would not hold.
const maxPodLabels = 64 << 10

// tooLarge says what is wrong with an object that has more labels than are kept.
func (k *kind) tooLarge(o metav1.Object) []files.Problem {
	size := 0
	for name, value := range o.GetLabels() {
		size += len(name) + len(value)
	}
	if k.mostLabels == 0 || size <= k.mostLabels {
		return nil
	}
	return []files.Problem{{Object: k.key(o.GetNamespace(), o.GetName()).String(), Field: "metadata.labels", Message: fmt.Sprintf("%d bytes of labels are more than the %d that are kept: it is no workload of the mesh", size, k.mostLabels),
		Fix: "give it fewer labels; what nobody selects by can be an annotation"}}
}

// core adapts the reader of one of Kubernetes' own types. The API server judges these itself.
func core[T any, P interface {
	*T
	runtime.Object
}](keep func(in *interner, object P) P) func(*kind, *interner, runtime.Object, *reading) {
	return func(k *kind, in *interner, object runtime.Object, to *reading) {
		if o, ok := object.(P); ok {
			if to.problems = k.tooLarge(any(o).(metav1.Object)); len(to.problems) == 0 {
				to.value = keep(in, o)
			}
			return
		}
		to.problems = []files.Problem{{Message: fmt.Sprintf("the API server sent a %T as a %s", object, k.name)}}
	}
}

// readMeshConfig reads the ConfigMap of the mesh's settings. Of its data the settings alone are kept.
func readMeshConfig(k *kind, in *interner, object runtime.Object, to *reading) {
	o, ok := object.(*corev1.ConfigMap)
	if !ok {
		to.problems = []files.Problem{{Message: fmt.Sprintf("the API server sent a %T as a %s", object, k.name)}}
		return
	}
	if to.problems = files.MeshConfig(o); len(to.problems) > 0 {
		return
	}
	kept := &corev1.ConfigMap{ObjectMeta: meta(in, &o.ObjectMeta)}
	if text, has := o.Data[meshconfig.DataKey]; has {
		kept.Data = map[string]string{meshconfig.DataKey: text}
	}
	to.value = kept
}

// readCustom reads an object of a kind that a CustomResourceDefinition brings.
func readCustom(k *kind, _ *interner, object runtime.Object, to *reading) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		to.problems = []files.Problem{{Message: fmt.Sprintf("the API server sent a %T as a %s", object, k.name)}}
		return
	}
	key := k.key(u.GetNamespace(), u.GetName())
	// Nobody reads these, and they are half of an object.
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	var allocated []*networkingapi.ServiceEntryAddress
	if k.group != model.GatewayGroup {
		// What controllers say of an object is none of its author's doing: nothing in it may keep the object from being read.
		if k.name == "ServiceEntry" {
			allocated = allocatedAddresses(u)
		}
		unstructured.RemoveNestedField(u.Object, "status")
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		to.problems = []files.Problem{{Object: key.String(), Message: err.Error(), Fix: "correct the object"}}
		return
	}
	value, problems := files.Served(key, raw)
	to.problems = problems
	if value != nil {
		to.value = trim(value)
		keepAllocated(value, allocated)
		return
	}
	if strictest, effect := files.Strictest(key, raw); strictest != nil {
		to.strictest, to.effect = trim(strictest), effect
	}
}
