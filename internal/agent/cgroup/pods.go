package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Pods finds the cgroups of pods by their uids, as the runtime knows them. A pod's is there before its network is, made by the kubelet, and
// stays for as long as the pod; nothing that runs in the pod leaves it.
type Pods struct {
	root string // the folder of all cgroups

	mu     sync.Mutex
	homes  []string // folders, below root, in which pods' cgroups are
	looked time.Time
	now    func() time.Time
}

// errNone: nothing tells whose a socket is.
var errNone = errors.New("the node has no cgroups of version 2")

// FindPods fails where the node has none.
func FindPods(proc string) (*Pods, error) {
	p := &Pods{now: time.Now}
	err := AsInit(proc, func() error {
		mount, err := Mount(proc)
		if err == nil && mount == "" {
			err = errNone
		}
		p.root = filepath.Join(proc, "1/root", mount)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// home is what folders are called in which kubelets have pods: cgroupfs has them below kubepods, systemd in slices that bear the names of
// those above them.
var home = regexp.MustCompile(`^(([a-zA-Z0-9_.:-]+-)?kubepods(-burstable|-besteffort)?\.slice|kubepods|burstable|besteffort)$`)

const (
	// deepest is how far below the root pods are looked for: a kubelet can have a root of its own.
	deepest = 5
	// looking is the time between two searches: each reads every folder.
	looking = time.Second
)

// Of returns the id of a pod's cgroup and its level below the root.
func (p *Pods) Of(uid string) (id uint64, level uint32, found bool) {
	if uid == "" || strings.ContainsAny(uid, "/.") {
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, level, found = p.lookLocked(uid); found {
		return id, level, true
	}
	if now := p.now(); now.Sub(p.looked) >= looking {
		p.looked, p.homes = now, nil
		p.searchLocked("", 0)
		return p.lookLocked(uid)
	}
	return 0, 0, false
}

func (p *Pods) lookLocked(uid string) (id uint64, level uint32, found bool) {
	for _, at := range p.homes {
		names := []string{"pod" + uid}
		if slice, ok := strings.CutSuffix(filepath.Base(at), ".slice"); ok {
			names = []string{slice + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"}
		}
		for _, name := range names {
			var st unix.Stat_t
			path := filepath.Join(at, name)
			if err := unix.Lstat(filepath.Join(p.root, path), &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				return st.Ino, uint32(strings.Count(path, "/") + 1), true
			}
		}
	}
	return 0, 0, false
}

// searchLocked notes the folders in which pods are. Of these only those of the same sort are looked into: what is in a pod's is the pod's.
func (p *Pods) searchLocked(at string, depth int) {
	entries, err := os.ReadDir(filepath.Join(p.root, at))
	if err != nil || depth > deepest {
		return
	}
	inside := strings.Contains(filepath.Base(at), "kubepods")
	for _, e := range entries {
		if !e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		path, kubelets := filepath.Join(at, e.Name()), home.MatchString(e.Name())
		if strings.HasSuffix(e.Name(), "burstable") || strings.HasSuffix(e.Name(), "besteffort") {
			kubelets = kubelets && inside
		}
		if kubelets {
			p.homes = append(p.homes, path)
		}
		if kubelets || !inside && !homeless(at) {
			p.searchLocked(path, depth+1)
		}
	}
}

// homeless are folders in which no kubelet's are.
func homeless(at string) bool {
	base := filepath.Base(at)
	return base == "burstable" || base == "besteffort" || strings.HasSuffix(base, ".service") || strings.HasSuffix(base, ".scope")
}
