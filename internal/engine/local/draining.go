package local

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// predecessors are a node's proxies that were replaced and have not ended, the oldest first.
func (o *observer) predecessors(n *node, host map[int]int) []api.Predecessor {
	if n.proxy == nil {
		return nil
	}
	n.proxy.mu.Lock()
	var out []api.Predecessor
	var pids []int
	for l, t := range n.proxy.draining {
		out = append(out, api.Predecessor{PID: l.PID, Since: t.since, Until: t.until})
	}
	n.proxy.mu.Unlock()
	if len(out) == 0 {
		return nil
	}
	trees := o.state.containerPIDs(podProcesses())
	o.state.mu.Lock()
	for _, p := range o.state.pods {
		for _, c := range p.containers {
			if tree := trees[c]; p.id.node == n && len(tree) > 0 {
				pids = append(pids, tree[0])
				break // the containers of a pod share its network
			}
		}
	}
	o.state.mu.Unlock()
	for i := range out {
		out[i].Connections = established("/proc", out[i].PID, append([]int{out[i].PID}, pids...))
		out[i].PID = host[out[i].PID]
	}
	slices.SortFunc(out, func(a, b api.Predecessor) int { return a.Since.Compare(b.Since) })
	return out
}

// established counts the established TCP connections of a process, among those of the network namespaces that the views are in.
func established(proc string, pid int, views []int) int {
	dir := fmt.Sprintf("%s/%d/fd", proc, pid)
	descriptors, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it has ended
	}
	inodes := map[string]bool{}
	for _, d := range descriptors {
		if target, err := os.Readlink(dir + "/" + d.Name()); err == nil && strings.HasPrefix(target, "socket:[") {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	count := 0
	for _, view := range views {
		for _, table := range []string{"tcp", "tcp6"} {
			rows, err := os.ReadFile(fmt.Sprintf("%s/%d/net/%s", proc, view, table))
			if err != nil {
				continue // the pod has ended, or the machine has no IPv6
			}
			for row := range strings.Lines(string(rows)) {
				const state, inode, open = 3, 9, "01"
				if f := strings.Fields(row); len(f) > inode && f[state] == open && inodes[f[inode]] {
					count++
					delete(inodes, f[inode]) // two views may be of one namespace
				}
			}
		}
	}
	return count
}
