package local

import (
	"maps"
	mathrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model/wellknown"
)

// node is one node with the parts of the mesh on it.
type node struct {
	fabric.Node
	name   string
	uid    string
	podUID string // of the proxy, which is a pod too
	agent  *daemon
	proxy  *daemon
	admin  string // the socket of the proxy's pages
	ips    *addresses
	// probeGroup is the group of the prober's sockets: drawn at random, so that no other process has it by accident.
	probeGroup int
	created    time.Time

	// Guarded by the state's lock.
	labels     map[string]string
	agentReady bool
	proxyReady bool
}

// newNodes makes the nodes that the options ask for, without what runs on them.
func newNodes(o Options, dir runDir, families []*fabric.Family, started time.Time) nodeList {
	var nodes nodeList
	for i := 1; i <= o.Nodes; i++ {
		name := nodeName(i)
		n := fabric.Node{Index: i, NetNS: dir.netns(name), Families: families, Delay: o.Latency / linksOfRoundTrip}
		nodes = append(nodes, &node{
			Node: n, name: name, uid: newUID(), podUID: newUID(), admin: filepath.Join(dir.node(name), "admin.sock"),
			ips: newAddresses(n.Pool()), created: started, probeGroup: 1<<30 + mathrand.IntN(1<<30),
			labels: map[string]string{
				"kubernetes.io/hostname": name,
				"kubernetes.io/os":       "linux",
				wellknown.NodeIndex:      strconv.Itoa(i),
				wellknown.Region:         "local",
				wellknown.Zone:           "local-" + name,
			},
		})
	}
	for _, n := range nodes {
		maps.Copy(n.labels, o.Labels[n.name])
	}
	return nodes
}

// nodeList are the nodes of a mesh. It has no lock of its own.
type nodeList []*node

// named is the node of a name, or nil.
func (l nodeList) named(name string) *node {
	i := slices.IndexFunc(l, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return l[i]
}

// ofProxyPod is the node whose proxy has the name of a pod, or nil.
func (l nodeList) ofProxyPod(namespace, name string) *node {
	i := slices.IndexFunc(l, func(n *node) bool { return namespace == meshNamespace && name == n.proxyPodName() })
	if i < 0 {
		return nil
	}
	return l[i]
}

// ports are the nodes' links to the fabric.
func (l nodeList) ports() []string {
	var out []string
	for _, n := range l {
		out = append(out, n.FabricPort())
	}
	return out
}
