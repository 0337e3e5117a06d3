package local

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/model"
)

// clusterDomain is the domain of the mesh's services.
const clusterDomain = "cluster.local"

// checkNames refuses what cannot be part of a name.
func checkNames(key model.Key, spec *corev1.PodSpec) error {
	for field, name := range map[string]string{"hostname": spec.Hostname, "subdomain": spec.Subdomain} {
		if name == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return fmt.Errorf("%s: spec.%s: %q is no label of a name: %s", key, field, name, wrong[0])
		}
	}
	return nil
}

// shortName is the pod's own name without a domain.
func (id *podIdentity) shortName() string {
	name := id.name
	if id.spec.Hostname != "" {
		name = id.spec.Hostname
	}
	// The hostname is shortened as on Kubernetes; it must not end with a hyphen or a dot.
	return strings.TrimRight(name[:min(len(name), maxHostname)], "-.")
}

// fullName is its name below the service that its subdomain names; empty without one.
func (id *podIdentity) fullName() string {
	if id.spec.Subdomain == "" {
		return ""
	}
	return id.shortName() + "." + id.spec.Subdomain + "." + id.namespace + ".svc." + clusterDomain
}

// hostname is what hostname(1) says in the pod: on a node's network the node's name.
func (id *podIdentity) hostname() string {
	switch full := id.fullName(); {
	case id.onNodesNetwork():
		return id.node.name
	case full != "" && id.spec.SetHostnameAsFQDN != nil && *id.spec.SetHostnameAsFQDN:
		return full
	}
	return id.shortName()
}

// hosts is the pod's /etc/hosts.
func (id *podIdentity) hosts() string {
	text := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	names := id.shortName()
	switch full := id.fullName(); {
	case id.onNodesNetwork():
		names = id.node.name
	case full != "":
		names = full + "\t" + names
	}
	for _, ip := range id.ips {
		text += fmt.Sprintf("%s\t%s\n", ip, names)
	}
	return text
}

// resolvConf is the pod's /etc/resolv.conf. As in Kubernetes a pod on its node's network resolves names as its node does,
// without the namespace's search list, unless it asks for ClusterFirstWithHostNet.
func (id *podIdentity) resolvConf(resolver fmt.Stringer) string {
	text := fmt.Sprintf("nameserver %s\n", resolver)
	switch id.spec.DNSPolicy {
	case corev1.DNSDefault:
		return text
	case corev1.DNSClusterFirst, "":
		if id.onNodesNetwork() {
			return text
		}
	}
	return text + fmt.Sprintf("search %s.svc.%s svc.%[2]s %[2]s\noptions ndots:5\n", id.namespace, clusterDomain)
}
