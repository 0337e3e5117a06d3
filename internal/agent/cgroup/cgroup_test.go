package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	uid   = "0a1b2c3d-1111-2222-3333-444455556666"
	other = "0a1b2c3d-1111-2222-3333-444455557777"
	hash  = "0123456789abcdef0123456789abcdef"
)

// node is a /proc with cgroups of version 2, where the folders are.
func node(t *testing.T, mountinfo string, folders ...string) (proc, root string) {
	t.Helper()
	proc = t.TempDir()
	root = filepath.Join(proc, "1", "root", "sys", "fs", "cgroup")
	err := errors.Join(os.MkdirAll(filepath.Join(proc, "1/ns"), 0o755), os.Symlink("/proc/self/ns/cgroup", filepath.Join(proc, "1/ns/cgroup")),
		os.WriteFile(filepath.Join(proc, "1/mountinfo"), []byte(mountinfo), 0o644), os.MkdirAll(root, 0o755))
	for _, f := range folders {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, f), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return proc, root
}

const v2 = "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

func slice(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

func TestFindsPodsWhereverKubeletsHaveThem(t *testing.T) {
	for name, c := range map[string]struct {
		at    string
		level uint32
	}{
		"cgroupfs, guaranteed":    {"kubepods/pod" + uid, 2},
		"cgroupfs, burstable":     {"kubepods/burstable/pod" + uid, 3},
		"cgroupfs, best effort":   {"kubepods/besteffort/pod" + uid, 3},
		"systemd, guaranteed":     {"kubepods.slice/kubepods-pod" + slice(uid) + ".slice", 2},
		"systemd, burstable":      {"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice(uid) + ".slice", 3},
		"systemd, best effort":    {"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + slice(uid) + ".slice", 3},
		"below a root of its own": {"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + slice(uid) + ".slice", 4},
		"the same with cgroupfs":  {"my/kubelet/kubepods/burstable/pod" + uid, 5},
	} {
		t.Run(name, func(t *testing.T) {
			proc, root := node(t, v2, "system.slice/kubelet.service", "system.slice/ssh.service/kubepods/pod"+uid, "user.slice", c.at+"/container", "kubepods/burstable/pod"+other)
			pods, err := FindPods(proc)
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(root, c.at), &st); err != nil {
				t.Fatal(err)
			}
			if id, level, found := pods.Of(uid); !found || id != st.Ino || level != c.level {
				t.Errorf("found %v: %d at level %d; want %d at %d", found, id, level, st.Ino, c.level)
			}
		})
	}
}

// A pod owns the cgroups below its own, and can name one like another pod's.
func TestAPodHasNoOthersCgroup(t *testing.T) {
	for _, decoy := range []string{
		"kubepods/burstable/pod" + other + "/pod" + uid,
		"kubepods/burstable/pod" + other + "/kubepods/pod" + uid,
		"kubepods/pod" + other + "/burstable/pod" + uid,
		"kubepods.slice/kubepods-pod" + slice(other) + ".slice/kubepods.slice/kubepods-pod" + slice(uid) + ".slice",
		"kubepods.slice/kubepods-pod" + slice(other) + ".slice/x/kubepods/pod" + uid,
		"burstable/pod" + uid, "pod" + uid,
	} {
		proc, _ := node(t, v2, decoy)
		pods, err := FindPods(proc)
		if err != nil {
			t.Fatal(err)
		}
		if id, _, found := pods.Of(uid); found {
			t.Errorf("%s is taken for the pod's: %d", decoy, id)
		}
	}
	proc, root := node(t, v2, "kubepods")
	if err := os.Symlink(root, filepath.Join(root, "kubepods/pod"+hash)); err != nil {
		t.Fatal(err)
	}
	pods, err := FindPods(proc)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{hash, "", "/../..", "x/../../system.slice", "."} {
		if id, _, found := pods.Of(uid); found {
			t.Errorf("uid %q is %d", uid, id)
		}
	}
}

// A pod that comes where others are is found without a search; one that comes where none was, once a search is due.
func TestPodsThatComeAreFound(t *testing.T) {
	proc, root := node(t, v2, "kubepods/burstable")
	pods, err := FindPods(proc)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	pods.now = func() time.Time { return now }
	is := func(uid string, want bool) {
		t.Helper()
		if _, _, found := pods.Of(uid); found != want {
			t.Errorf("%s: found %v", uid, found)
		}
	}
	come := func(at string) {
		if err := os.MkdirAll(filepath.Join(root, at), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	is(uid, false)
	come("kubepods/burstable/pod" + uid)
	is(uid, true)
	come("kubepods/besteffort/pod" + hash)
	is(hash, false)
	now = now.Add(looking)
	is(hash, true)
	is(uid, true)
	if err := os.Remove(filepath.Join(root, "kubepods/burstable/pod"+uid)); err != nil {
		t.Fatal(err)
	}
	is(uid, false)
}

func TestANodeWithoutVersion2HasNone(t *testing.T) {
	proc, _ := node(t, "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
	if _, err := FindPods(proc); !errors.Is(err, errNone) {
		t.Errorf("got %v", err)
	}
	if _, err := FindPods(t.TempDir()); err == nil || errors.Is(err, errNone) {
		t.Errorf("without a view of the node: %v", err)
	}
}
