package cli

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

// Connections that a replaced node proxy keeps are in no page of its successor.
func TestTapAndTopNameNodesWhoseOldProxyDrains(t *testing.T) {
	f := newFake(t)
	drains := func(connections ...int) (out api.ProxyState) {
		for _, n := range connections {
			out.Draining = append(out.Draining, api.Predecessor{Connections: n})
		}
		return out
	}
	f.status.Nodes = []api.NodeState{{Name: "n1", Proxy: drains(0)}, {Name: "n2", Proxy: drains(3, 1)}}
	for _, command := range []string{"top --once", "tap --for 10ms"} {
		r := f.run("", strings.Fields(command)...)
		said := strings.Join(strings.Fields(r.stderr), " ")
		if !strings.Contains(said, "warning: not shown: 4 TCP connections of n2 in a node proxy that was replaced and still drains; `lateen status") || strings.Contains(said, "connections of n1") {
			t.Errorf("%s: stderr %q", command, r.stderr)
		}
	}
}
