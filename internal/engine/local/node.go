package local

import (
	"context"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"lateen.dev/lateen/internal/engine/api"
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

// of returns the node that a request names in its path.
func (l nodeList) of(r *http.Request) (*node, error) {
	if n := l.named(r.PathValue("node")); n != nil {
		return n, nil
	}
	return nil, &api.Error{Code: http.StatusNotFound, Message: "there is no node " + strconv.Quote(r.PathValue("node")), Fix: "list them with `lateen get nodes`"}
}

// servePage makes a handler of a page of the node that a request names.
func (l nodeList) servePage(page func(context.Context, *node, *http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := l.of(r)
		if err != nil {
			fail(w, err)
			return
		}
		b, err := page(r.Context(), n, r)
		if err != nil {
			fail(w, &api.Error{Code: http.StatusBadGateway, Message: "ask on node " + n.name + ": " + err.Error(), Fix: "see `lateen status`"})
			return
		}
		_, _ = w.Write(b)
	}
}

// serveLog makes a handler of the log of a daemon on the node that a request names.
func (l nodeList) serveLog(part func(*node) *daemon) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := l.of(r)
		if err != nil {
			fail(w, err)
			return
		}
		serveDaemonLog(w, r, part(n))
	}
}

// stopAll ends one daemon of every node, all at once.
func (l nodeList) stopAll(which func(*node) *daemon) {
	var wg sync.WaitGroup
	for _, n := range l {
		if d := which(n); d != nil {
			wg.Go(func() { d.stop(stopTimeout) })
		}
	}
	wg.Wait()
}
