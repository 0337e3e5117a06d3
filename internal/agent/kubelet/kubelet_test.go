package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// machine is a /proc of the test's, with cgroups of version 2 where the node's init has them.
type machine struct {
	t          *testing.T
	proc, root string
	here       string // the network namespace that is the node's
}

const mountinfo = "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"

func newMachine(t *testing.T) *machine {
	t.Helper()
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, proc: t.TempDir(), root: t.TempDir(), here: here}
	m.write("1/mountinfo", mountinfo)
	m.write("1/comm", "systemd\n")
	m.link("1/ns/cgroup", "/proc/self/ns/cgroup")
	m.link("1/root", m.root)
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.proc, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) link(path, to string) {
	m.t.Helper()
	path = filepath.Join(m.proc, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
		m.t.Fatal(err)
	}
}

// cgroup makes a cgroup of version 2 and returns its id.
func (m *machine) cgroup(path string) uint64 {
	m.t.Helper()
	dir := filepath.Join(m.root, "sys/fs/cgroup", path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		m.t.Fatal(err)
	}
	return st.Ino
}

// program is a process of the machine.
type program struct {
	pid             int
	comm            string
	cmdline, cgroup string
	elsewhere       bool // not on the node's network
	started         int
	ids             string // of its user; root's if empty
}

func (m *machine) run(p program) {
	m.t.Helper()
	dir := fmt.Sprint(p.pid)
	m.write(dir+"/comm", p.comm+"\n")
	m.write(dir+"/cmdline", strings.ReplaceAll(p.cmdline, " ", "\x00")+"\x00")
	m.write(dir+"/cgroup", p.cgroup)
	// A name may have anything in it.
	m.write(dir+"/stat", fmt.Sprintf("%d (%s) ) S%s %d 0 0\n", p.pid, p.comm, strings.Repeat(" 0", 18), p.started))
	m.write(dir+"/status", fmt.Sprintf("Name:\t%s\nUid:\t%s\nGid:\t0\t0\t0\t0\n", p.comm, cmp.Or(p.ids, "0\t0\t0\t0")))
	net := m.here
	if p.elsewhere {
		net = "net:[1]"
	}
	m.link(dir+"/ns/net", net)
}

const service = "0::/system.slice/kubelet.service\n"

func TestFindsTheKubelet(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	hash := strings.Repeat("0123456789abcdef", 2)
	for name, c := range map[string]struct {
		programs []program
		want     int // its pid; 0 for none
	}{
		"by what it executes":          {[]program{{pid: 10, comm: "kubelet", cmdline: "/usr/bin/kubelet --config=x", cgroup: service}}, 10},
		"by how it was called":         {[]program{{pid: 10, comm: "exe", cmdline: "/opt/bin/k3s-agent", cgroup: service}}, 10},
		"by what a program of many is": {[]program{{pid: 10, comm: "kubernetes", cmdline: "/opt/kubernetes kubelet", cgroup: service}}, 10},
		"another part of that program": {[]program{{pid: 10, comm: "kubernetes", cmdline: "/opt/kubernetes kube-proxy", cgroup: service}}, 0},
		"an argument is no name":       {[]program{{pid: 10, comm: "vi", cmdline: "vi kubelet", cgroup: service}}, 0},
		"none":                         {[]program{{pid: 10, comm: "sshd", cmdline: "sshd", cgroup: "0::/system.slice/sshd.service\n"}}, 0},
		"a kernel thread":              {[]program{{pid: 10, comm: "kworker/0:1", cgroup: "0::/\n"}}, 0},
		"the oldest":                   {[]program{{pid: 10, comm: "kubelet", cgroup: service, started: 900}, {pid: 20, comm: "kubelet", cgroup: service, started: 50}}, 20},
		"in a pod's network":           {[]program{{pid: 10, comm: "kubelet", cgroup: service, elsewhere: true}}, 0},
		"in a pod, by cgroupfs":        {[]program{{pid: 10, comm: "kubelet", cgroup: "0::/kubepods/burstable/pod" + uid + "/abc\n"}}, 0},
		"in a pod, by systemd": {[]program{{pid: 10, comm: "kubelet",
			cgroup: "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-abc.scope\n"}}, 0},
		"in a pod below a root of its own":        {[]program{{pid: 10, comm: "kubelet", cgroup: "0::/mine/pod" + uid + "/abc\n"}}, 0},
		"in a static pod seen from beside it":     {[]program{{pid: 10, comm: "kubelet", cgroup: "0::/../../pod" + hash + "/abc\n"}}, 0},
		"in a pod, by one hierarchy of version 1": {[]program{{pid: 10, comm: "kubelet", cgroup: "5:cpu:/\n4:memory:/kubepods/pod" + uid + "/abc\n0::/\n"}}, 0},
		"somebody's who has an account":           {[]program{{pid: 10, comm: "kubelet", cgroup: service, ids: "1000\t1000\t1000\t1000"}}, 0},
		"a program that is root for everybody":    {[]program{{pid: 10, comm: "sudo", cmdline: "kubelet", cgroup: service, ids: "1000\t0\t0\t0"}}, 0},
		"somebody's older process does not count": {[]program{{pid: 10, comm: "kubelet", cgroup: service, started: 1, ids: "1\t1\t1\t1"}, {pid: 20, comm: "kubelet", cgroup: service, started: 9}}, 20},
		"a pod's older process does not count": {[]program{
			{pid: 10, comm: "kubelet", cgroup: "0::/kubepods/pod" + uid + "/abc\n", started: 1},
			{pid: 20, comm: "kubelet", cgroup: service, started: 100},
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			id := m.cgroup("system.slice/kubelet.service")
			for _, p := range c.programs {
				m.run(p)
			}
			got, err := find(m.proc, Names)
			switch {
			case c.want == 0:
				if !errors.Is(err, errNone) {
					t.Errorf("found %+v, %v", got, err)
				}
			case err != nil || got.PID != c.want:
				t.Errorf("found %+v, %v; want pid %d", got, err, c.want)
			case got.id != id || got.Cgroup != "/system.slice/kubelet.service":
				// Without its cgroup every process of its user would be taken for it.
				t.Errorf("its cgroup is %q, id %d; want id %d", got.Cgroup, got.id, id)
			}
		})
	}
}

func TestTheKubeletsCgroupIsFoundWhereTheNodesInitHasIt(t *testing.T) {
	kubelet := program{pid: 10, comm: "kubelet", cgroup: service}
	for name, c := range map[string]struct {
		prepare  func(m *machine)
		byCgroup bool
		fails    string
	}{
		"version 2": {func(m *machine) {}, true, ""},
		"version 2 beside version 1": {func(m *machine) {
			kubelet.cgroup = "3:cpu:/system.slice/kubelet.service\n" + service
		}, true, ""},
		"version 1 alone": {func(m *machine) {
			kubelet.cgroup = "3:cpu:/system.slice/kubelet.service\n"
		}, false, ""},
		"version 2 is not mounted": {func(m *machine) {
			m.write("1/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n")
		}, false, ""},
		"a part of version 2 is mounted": {func(m *machine) {
			m.write("1/mountinfo", "30 23 0:26 /part /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
		}, false, ""},
		"outside of what init sees": {func(m *machine) { kubelet.cgroup = "0::/../kubelet.service\n" }, false, "outside of those that the node's init sees"},
		"it is gone":                {func(m *machine) { kubelet.cgroup = "0::/gone.service\n" }, false, "look at the kubelet's cgroup"},
		"init cannot be entered": {func(m *machine) {
			if err := os.Remove(filepath.Join(m.proc, "1/ns/cgroup")); err != nil {
				m.t.Fatal(err)
			}
		}, false, "hostPID"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.cgroup("system.slice/kubelet.service")
			kubelet.cgroup = service
			c.prepare(m)
			m.run(kubelet)
			p, err := find(m.proc, Names)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("found %+v, %v", p, err)
				}
				return
			}
			if err != nil || p.PID == 0 || (p.id != 0) != c.byCgroup {
				t.Fatalf("found %+v, %v; by its cgroup: %v", p, err, c.byCgroup)
			}
			if says := p.limits(); strings.Contains(says, "every process in the kubelet's cgroup") != c.byCgroup {
				t.Errorf("it says %q", says)
			}
		})
	}
}

func TestAProcessThatTookThePidIsAnother(t *testing.T) {
	m := newMachine(t)
	m.cgroup("system.slice/kubelet.service")
	m.run(program{pid: 10, comm: "kubelet", cgroup: service, started: 77})
	p, err := find(m.proc, Names)
	if err != nil || p.Started != "77" || !p.alive(m.proc) {
		t.Fatalf("found %+v, %v", p, err)
	}
	m.write("10/stat", fmt.Sprintf("10 (kubelet) S%s 78 0\n", strings.Repeat(" 0", 18)))
	if p.alive(m.proc) {
		t.Error("another process is taken for it")
	}
	m.write("10/stat", "10 (kubelet) S 1 2\n")
	if p.alive(m.proc) {
		t.Error("half a line is taken for it")
	}
	if err := os.RemoveAll(filepath.Join(m.proc, "10")); err != nil {
		t.Fatal(err)
	}
	if p.alive(m.proc) {
		t.Error("a process that has ended is alive")
	}
}

// Processes come and go while they are looked at, and files of /proc are empty then.
func FuzzNamed(f *testing.F) {
	f.Add("kubelet\n", "/usr/bin/kubelet\x00--x\x00", "10 (kubelet) S 0", "0::/\n")
	f.Add("", "", "", "")
	f.Add(")", "\x00\x00", ")", "::")
	f.Fuzz(func(t *testing.T, comm, cmdline, stat, cgroup string) {
		m := newMachine(t)
		m.write("10/comm", comm)
		m.write("10/cmdline", cmdline)
		m.write("10/stat", stat)
		m.write("10/cgroup", cgroup)
		m.write("10/status", "Uid:\t0\t0\t0\t0\n")
		m.link("10/ns/net", m.here)
		if p, err := find(m.proc, Names); err == nil && (p.PID != 10 || podCgroup.MatchString(cgroup)) {
			t.Errorf("found %+v", p)
		}
	})
}
