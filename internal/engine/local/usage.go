package local

import (
	"os"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// podProcesses maps, for each pod, the pids in the pod's own namespace to those in the mesh's, and each process to its parent.
func podProcesses() (parents map[int]int, inner map[int]int) {
	parents, inner = map[int]int{}, map[int]int{}
	pids, err := proc.PIDs("/proc")
	if err != nil {
		return parents, inner
	}
	for _, pid := range pids {
		st, err := proc.ReadStat("/proc", pid)
		if err != nil || st.State == 'Z' {
			continue
		}
		parents[pid] = st.PPID
		if ns, err := proc.NSPIDs("/proc", pid); err == nil && len(ns) > 1 {
			inner[pid] = ns[1]
		}
	}
	return parents, inner
}

// containerPIDs finds, for every running container, its main process and all that descend from it.
func (s *state) containerPIDs(parents, inner map[int]int) map[*container][]int {
	children := map[int][]int{}
	for pid, parent := range parents {
		children[parent] = append(children[parent], pid)
	}
	out := map[*container][]int{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.init == nil {
			continue
		}
		for _, c := range p.containers {
			if !c.running() {
				continue
			}
			for _, pid := range children[p.init.PID()] {
				if inner[pid] == c.process.PID {
					out[c] = descend(pid, children, nil)
				}
			}
		}
	}
	return out
}

func descend(pid int, children map[int][]int, into []int) []int {
	into = append(into, pid)
	for _, c := range children[pid] {
		into = descend(c, children, into)
	}
	return into
}

// usage adds up what every part of the mesh has consumed.
func (o *observer) usage() api.Usage {
	host := o.host.pids()
	u := api.Usage{Time: time.Now()}
	add := func(kind, name, node string, restarts int, pids ...int) {
		c := api.ComponentUsage{Kind: kind, Name: name, Node: node, Restarts: restarts, PID: host[pids[0]]}
		for _, pid := range pids {
			st, err := proc.ReadStat("/proc", pid)
			if err != nil {
				continue // it has just ended
			}
			if ns, err := proc.CPUNanos(pid); err == nil {
				c.CPUNanos += ns
			}
			c.UserTicks += st.UserTicks
			c.SysTicks += st.SysTicks
			c.RSSBytes += st.RSSPages * uint64(os.Getpagesize())
			c.Threads += st.Threads
		}
		u.Components = append(u.Components, c)
	}
	add("engine", "lateen", "", 0, os.Getpid())
	addDaemon := func(kind, name, node string, d *daemon) {
		if d == nil {
			return
		}
		if s := d.state(); s.process != nil {
			add(kind, name, node, s.restarts, s.process.PID)
		}
	}
	addDaemon("control", controlBinary, "", o.daemons.control)
	for _, n := range o.state.nodes {
		addDaemon("agent", n.name, n.name, n.agent)
		addDaemon("proxy", n.name, n.name, n.proxy)
	}
	pids := o.state.containerPIDs(podProcesses())
	o.state.mu.Lock()
	type counted struct {
		name, node string
		restarts   int
		pids       []int
	}
	var all []counted
	for _, p := range o.state.pods {
		for _, c := range p.containers {
			if len(pids[c]) > 0 {
				all = append(all, counted{p.id.namespace + "/" + p.id.name + "/" + c.spec.Name, p.id.node.name, c.restarts, pids[c]})
			}
		}
	}
	o.state.mu.Unlock()
	for _, c := range all {
		add("container", c.name, c.node, c.restarts, c.pids...)
	}
	return u
}
