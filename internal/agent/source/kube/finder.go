package kube

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// finder finds the network namespaces of pods that run already, by their processes. What runs in a pod may deceive it: it
// can make networks of its own with whatever addresses it likes, and as many processes in them.
type finder struct {
	proc   string // the node's /proc
	mounts string // where the runtime mounts network namespaces
	host   netns.ID
	owner  netns.ID // the user namespace that the node's network belongs to
}

func newFinder(proc, mounts string) (*finder, error) {
	host, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer host.Close()
	owner, err := host.Owner()
	return &finder{proc: proc, mounts: mounts, host: host.ID(), owner: owner}, err
}

// network is a pod's network namespace.
type network struct {
	path string
	id   netns.ID
	held *netns.Namespace // open, if only processes keep it: the path may lead elsewhere later
}

// podSegment is the part of a cgroup's path that names a pod, as cgroupfs (dashes) and systemd (underscores) have it.
// A static pod's uid is a hash without either.
var podSegment = regexp.MustCompile(`(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)`)

// podOf reads the uid of a process' pod from its cgroups. The outermost one counts: a pod may name cgroups of its own
// below that as it likes.
func podOf(cgroups string) (uid string, ok bool) {
	for line := range strings.Lines(cgroups) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":")
		_, path, _ = strings.Cut(path, ":")
		m := podSegment.FindStringSubmatch(path)
		if m == nil {
			continue
		}
		found := strings.ReplaceAll(m[1], "_", "-")
		if uid != "" && uid != found {
			return "", false
		}
		uid = found
	}
	return uid, uid != ""
}

// traces are the networks that the processes of one pod are in.
type traces struct {
	mounted map[netns.ID]string           // namespaces that the runtime mounted, and their paths
	loose   map[netns.ID]*netns.Namespace // namespaces that only processes keep alive
	made    map[netns.ID]bool             // namespaces of user namespaces that the pod made
	more    bool                          // there are more loose namespaces than are examined
	host    bool                          // a process is in the node's network namespace
	err     error                         // why a process could not be examined
}

func newTraces() *traces {
	return &traces{mounted: map[netns.ID]string{}, loose: map[netns.ID]*netns.Namespace{}, made: map[netns.ID]bool{}}
}

// maxLoose bounds the networks of one pod that are looked at. A process that has the node's own rights can make any number of
// them. What any process can, with users of its own, does not count: nobody hides the pod's network so.
const maxLoose = 16

// find looks for the namespaces of the pods, by the uids that the runtime knows them by and their addresses. Of those
// that are not found, why says what was in the way.
func (f *finder) find(pods map[string][]netip.Addr) (found map[string]network, why map[string]error) {
	found, why = map[string]network{}, map[string]error{}
	seen := map[string]*traces{}
	mounted := f.mounted()
	err := eachProcess(f.proc, func(dir *os.File, uid string) {
		if _, wanted := pods[uid]; !wanted {
			return
		}
		t := seen[uid]
		if t == nil {
			t = newTraces()
			seen[uid] = t
		}
		if err := f.look(dir, mounted, t); err != nil {
			t.err = err
		}
	})
	for uid, addresses := range pods {
		t := seen[uid]
		switch {
		case err != nil:
			why[uid] = fmt.Errorf("look for the pod's processes: %w", err)
		case t == nil:
			why[uid] = errors.New("no process of the pod was found on this node; the agent needs hostPID")
		default:
			n, err := f.decide(t, addresses)
			if err != nil {
				why[uid] = err
				continue
			}
			found[uid] = n
		}
	}
	for uid, t := range seen {
		for _, ns := range t.loose {
			if found[uid].held != ns {
				ns.Close()
			}
		}
	}
	return found, why
}

// eachProcess calls fn with the folder of each process of a pod, and the uid that the runtime knows the pod by. The folder
// is open: it is that process', or nobody's any more, whatever becomes of its number.
func eachProcess(proc string, fn func(dir *os.File, uid string)) error {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return err
	}
	for _, process := range processes {
		if _, err := strconv.Atoi(process.Name()); err != nil {
			continue
		}
		dir, err := os.Open(filepath.Join(proc, process.Name()))
		if err != nil {
			continue // it ended
		}
		if cgroup, err := openIn(dir, "cgroup"); err == nil {
			cgroups, err := io.ReadAll(cgroup)
			cgroup.Close()
			if uid, ok := podOf(string(cgroups)); err == nil && ok {
				fn(dir, uid)
			}
		}
		dir.Close()
	}
	return nil
}

func openIn(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

// ownNetwork is where a process' folder has its network namespace.
const ownNetwork = "ns/net"

// look notes which network a process of a pod is in.
func (f *finder) look(dir *os.File, mounted map[netns.ID]string, t *traces) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(int(dir.Fd()), ownNetwork, &st, 0); {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		return nil // it ended
	case err != nil:
		return fmt.Errorf("look at the network of the pod's process %s: %w; the agent needs hostPID and CAP_SYS_PTRACE", filepath.Base(dir.Name()), err)
	}
	id := netns.ID{Device: st.Dev, Inode: st.Ino}
	if id == f.host {
		t.host = true
		return nil
	}
	if t.loose[id] != nil || t.made[id] {
		return nil
	}
	if path, there := mounted[id]; there {
		t.mounted[id] = path
		return nil
	}
	file, err := openIn(dir, ownNetwork)
	if err != nil {
		return nil // it ended
	}
	ns, err := netns.Adopt(file)
	switch {
	case err != nil:
		return err
	case ns.ID() == f.host || t.loose[ns.ID()] != nil:
		return ns.Close()
	}
	owner, err := ns.Owner()
	switch {
	case err != nil:
		return errors.Join(err, ns.Close())
	case owner != f.owner:
		t.made[ns.ID()] = true
		return ns.Close()
	case len(t.loose) >= maxLoose:
		t.more = true
		return ns.Close()
	}
	t.loose[ns.ID()] = ns
	return nil
}

// decide says which of the networks that a pod's processes are in is the pod's. Where the runtime mounts networks only those
// count: nothing that runs in a pod can mount one there. Otherwise there must be only one.
func (f *finder) decide(t *traces, addresses []netip.Addr) (network, error) {
	var fit []network
	err := t.err
	if len(t.made) > 0 && err == nil {
		err = errors.New("a process of the pod is in a network that it made itself; the pod's own was not found")
	}
	for id, path := range t.mounted {
		ns, openErr := netns.Open(path)
		if openErr != nil {
			err = openErr
			continue
		}
		if lacking := holds(ns, addresses); lacking != nil {
			err = lacking
		} else if ns.ID() == id {
			fit = append(fit, network{path: path, id: id})
		}
		ns.Close()
	}
	if len(t.mounted) == 0 {
		for id, ns := range t.loose {
			if lacking := holds(ns, addresses); lacking != nil {
				err = lacking
			} else {
				fit = append(fit, network{path: ns.Name(), id: id, held: ns})
			}
		}
	}
	switch {
	case len(fit) > 1, len(t.mounted) == 0 && t.more:
		return network{}, errors.New("the pod's processes are in several networks that can be the pod's; restart the pod to have it captured at birth")
	case len(fit) == 1:
		return fit[0], nil
	case err == nil:
		err = errors.New("the pod's processes are on the node's network")
	}
	return network{}, err
}

// mounted are the namespaces that the runtime has mounted.
func (f *finder) mounted() map[netns.ID]string {
	all := map[netns.ID]string{}
	entries, _ := os.ReadDir(f.mounts)
	for _, e := range entries {
		path := filepath.Join(f.mounts, e.Name())
		if id, err := netns.Identify(path); err == nil {
			all[id] = path
		}
	}
	return all
}
