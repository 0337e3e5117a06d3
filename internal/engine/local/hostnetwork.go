package local

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/podspec"
	"lateen.dev/lateen/internal/model"
)

// A pod with hostNetwork lives in its node's network namespace. It is never captured, as in Istio's ambient mode: what it
// sends and receives is plaintext. It is no more trusted than other pods, and finds nothing there that obeys it.

// outsideTheMesh is what status says of such a pod.
const outsideTheMesh = "shares its node's network, which is never captured: plaintext, and no policy holds for what it receives"

// meshPorts are the ports of a node's network that parts of the mesh have, and whose.
var meshPorts = map[uint16]string{
	portOf(agentHTTP):     "the node's agent, for its metrics",
	portOf(proxyAdmin):    "the node proxy, for its admin pages",
	portOf(proxyMetrics):  "the node proxy, for its metrics",
	portOf(proxyReadyURL): "the node proxy, for its readiness",
}

func portOf(address string) uint16 {
	_, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		panic("the mesh's own address " + address + " has no port")
	}
	return uint16(n)
}

// firstFreePort is the lowest port of a node's network that a pod can take: those below need privileges, which no pod has.
const firstFreePort = 1024

// checkHostNetwork refuses a spec whose ports cannot be had in any node's network.
func checkHostNetwork(key model.Key, spec *corev1.PodSpec) error {
	if !spec.HostNetwork {
		return nil
	}
	for _, c := range podspec.Containers(spec) {
		for _, p := range c.Ports {
			where := fmt.Sprintf("%s: container %s: ports: containerPort %d", key, c.Name, p.ContainerPort)
			switch owner := meshPorts[uint16(p.ContainerPort)]; {
			case owner != "":
				return fmt.Errorf("%s belongs to %s, and a pod with hostNetwork shares its node's ports; listen on another one", where, owner)
			case p.HostPort != 0 && p.HostPort != p.ContainerPort:
				return fmt.Errorf("%s with hostPort %d: with hostNetwork they are the same port; leave hostPort out", where, p.HostPort)
			case p.ContainerPort < firstFreePort:
				return fmt.Errorf("%s: in a node's network only root listens below %d, and no pod is root; listen on a higher one", where, firstFreePort)
			}
		}
	}
	return nil
}

// hostPort is a port that a pod takes in its node's network.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
}

func hostPorts(spec *corev1.PodSpec) (out []hostPort) {
	if !spec.HostNetwork {
		return nil
	}
	for _, c := range podspec.Containers(spec) {
		for _, p := range c.Ports {
			out = append(out, hostPort{cmp.Or(p.Protocol, corev1.ProtocolTCP), p.ContainerPort})
		}
	}
	return out
}

// cannotHost says why a node cannot take a pod of an owner and its template's hash; empty if it can. The state's lock must be held.
func (r *reconciler) cannotHost(n *node, spec *corev1.PodSpec, owner model.Key, hash string) string {
	switch {
	case !spec.HostNetwork:
		return ""
	case n.program().ztunnel:
		return "a pod with hostNetwork could end its proxy, which is not Lateen's own and answers anybody on port 15000 of the node's network"
	case r.adminOnLoopback:
		return "a pod with hostNetwork could end its proxy, whose admin pages LATEEN_ADMIN_LOOPBACK opens to the node's network"
	}
	wanted := hostPorts(spec)
	for _, other := range r.state.pods {
		if other.id.node != n {
			continue
		}
		for _, taken := range hostPorts(&other.id.spec) {
			if !slices.Contains(wanted, taken) {
				continue
			}
			why := fmt.Sprintf("port %d of its network belongs to pod %s/%s", taken.port, other.id.namespace, other.id.name)
			// A rolling update that adds pods before it removes old ones never ends, if the Deployment has a pod on every node.
			if owner.Kind == "Deployment" && other.id.owner == owner && other.id.hash != hash && !other.stopping {
				why += ", an older one of the same Deployment, which is not ended before a new one is ready; set spec.strategy.rollingUpdate to {maxSurge: 0, maxUnavailable: 1}"
			}
			return why
		}
	}
	return ""
}

// adminOnLoopback says whether node proxies were told to answer the node's whole network.
func (o *Options) adminOnLoopback() bool {
	on := false
	for _, variable := range o.ProxyEnv {
		if value, is := strings.CutPrefix(variable, "LATEEN_ADMIN_LOOPBACK="); is {
			on = value == "true" // the last one counts
		}
	}
	return on
}
