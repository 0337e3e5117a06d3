// Package kubelet knows the node's kubelet among its processes, and has its probes pass captured pods. It does not know
// which pods are captured.
package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/cgroup"
	"lateen.dev/lateen/internal/agent/redirect"
)

// Names are those of programs that have a kubelet in them.
var Names = []string{"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2"}

// process is a kubelet that runs, and how its sockets are known.
type process struct {
	PID     int
	Started string // its start time: a number of its own for each life of a pid
	Cgroup  string // of version 2, as the node's init sees it; empty if there is none
	id      uint64 // the cgroup's
}

// limits says in words what else is taken for the kubelet.
func (p process) limits() string {
	if p.id != 0 {
		return "every process in the kubelet's cgroup " + p.Cgroup
	}
	return "every process of root on the node's network, since the node has no cgroups of version 2"
}

func (p process) prober() redirect.Prober {
	if p.id == 0 {
		return redirect.ByUser(0) // a kubelet is root's
	}
	return redirect.ByCgroup(p.id, uint32(len(strings.FieldsFunc(p.Cgroup, func(r rune) bool { return r == '/' }))))
}

var errNone = errors.New("no kubelet was found among the node's processes: none of root's on the node's network is named like one and is in no pod; the agent needs hostPID, and --kubelet-names the right name")

// podCgroup is in the path of every cgroup of a pod, as the node's init sees it. A static pod's uid is a hash without
// dashes.
var podCgroup = regexp.MustCompile(`(^|/)kubepods([./-]|$)|pod([0-9a-f]{8}[-_][0-9a-f]{4}|[0-9a-f]{32})`)

// find looks for the kubelet: root's, named like one, on the network namespace of the calling thread, and in no pod. The oldest
// counts. A pod on the node's network may name its processes as it likes, but not leave its cgroups, and so may somebody who has
// an account on the node, but not be root.
func find(proc string, names []string) (process, error) {
	var p process
	// Seen from a cgroup namespace of the agent's own, paths of other pods' cgroups begin with dots, and are shorter.
	err := cgroup.AsInit(proc, func() (err error) {
		if p, err = search(proc, names); err != nil {
			return err
		}
		return p.locate(proc)
	})
	return p, err
}

// search finds the process.
func search(proc string, names []string) (process, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return process{}, err
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return process{}, fmt.Errorf("look for the kubelet: %w", err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name())
		if !named(dir, names) {
			continue
		}
		if net, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || net != here {
			continue
		}
		cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || podCgroup.Match(cgroups) {
			continue
		}
		p := process{PID: pid}
		if p.Started, err = started(dir); err != nil || !roots(dir) {
			continue
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return process{}, errNone
	}
	return slices.MinFunc(found, func(a, b process) int {
		x, _ := strconv.ParseUint(a.Started, 10, 64)
		y, _ := strconv.ParseUint(b.Started, 10, 64)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.PID, b.PID))
	}), nil
}

// multicall are programs whose first argument says which component of Kubernetes they are.
var multicall = []string{"kubernetes", "hyperkube"}

// named says whether the process has one of the names: by what it executes, by how it was called, or by what a program of
// many names was called for.
func named(dir string, names []string) bool {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return false
	}
	if slices.Contains(names, strings.TrimSpace(string(comm))) {
		return true
	}
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return false
	}
	words := strings.Split(string(line), "\x00")
	called := filepath.Base(words[0])
	return slices.Contains(names, called) || len(words) > 1 && slices.Contains(multicall, called) && slices.Contains(names, words[1])
}

// roots says whether a process is root's in every respect. Whoever starts a program that runs as root for others names it, too.
func roots(dir string) bool {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		// Real, effective, saved, and that of files and sockets.
		if ids, found := strings.CutPrefix(line, "Uid:"); found {
			return slices.Equal(strings.Fields(ids), []string{"0", "0", "0", "0"})
		}
	}
	return false
}

// alive says whether the same process still runs.
func (p process) alive(proc string) bool {
	s, err := started(filepath.Join(proc, strconv.Itoa(p.PID)))
	return err == nil && s == p.Started
}

// started reads a process' start time, the 22nd field of its stat, counted behind its name.
func started(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const behindName = 22 - 3
	if len(fields) <= behindName {
		return "", fmt.Errorf("read %s/stat: it has %d fields", dir, len(fields))
	}
	return fields[behindName], nil
}

// locate finds the process' cgroup of version 2, on a thread that sees cgroups as the node's init does. On a node without
// such cgroups it stays without.
func (p *process) locate(proc string) error {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(p.PID), "cgroup"))
	if err != nil {
		return fmt.Errorf("read the kubelet's cgroup: %w", err)
	}
	var path string
	for line := range strings.Lines(string(b)) {
		if rest, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::"); v2 {
			path = rest
		}
	}
	mount, err := cgroup.Mount(proc)
	if err != nil || path == "" || mount == "" {
		return err
	}
	// The kubelet is not identified by its user instead: every process of root on the node's network would match.
	if strings.HasPrefix(path, "/..") {
		return fmt.Errorf("the kubelet's cgroup %s is outside of those that the node's init sees", path)
	}
	var st unix.Stat_t
	dir := filepath.Join(proc, "1/root", mount, path)
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("look at the kubelet's cgroup %s: %w", dir, err)
	}
	p.Cgroup, p.id = path, st.Ino
	return nil
}
