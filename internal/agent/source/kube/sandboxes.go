package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"

	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/netns"
)

// sandbox is what the runtime said of a pod when it made its network, or what was found out about a pod that runs.
type sandbox struct {
	ID    string `json:"id,omitempty"` // the runtime's name; empty if it was found
	NetNS string `json:"netns"`
	// Device and Inode tell that network from another that the path may lead to one day.
	Device    uint64   `json:"device,omitempty"`
	Inode     uint64   `json:"inode,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Namespace and Name are the pod's. Its uid is not always the API server's.
	Namespace string `json:"podNamespace,omitempty"`
	Name      string `json:"podName,omitempty"`
	// Going: the runtime is about to take the network away, or has done so.
	Going bool `json:"going,omitempty"`

	held  *netns.Namespace // the network, where no mount keeps it under its path
	stale bool             // an earlier agent noted it; what happened since nobody saw
}

func (s sandbox) addresses() []netip.Addr {
	var all []netip.Addr
	for _, text := range s.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

func (s sandbox) network() netns.ID { return netns.ID{Device: s.Device, Inode: s.Inode} }

// of says whether the sandbox belongs to the pod of that name.
func (s sandbox) of(namespace, name string) bool {
	return s.Name == "" || s.Namespace == namespace && s.Name == name
}

// gone: its network is no more.
func (s sandbox) gone() bool { return s.Going && s.NetNS == "" }

// stands says whether its network is there.
func (s sandbox) stands() bool {
	if s.held != nil {
		return true
	}
	ns, err := netns.Open(s.NetNS)
	if err != nil {
		return false
	}
	defer ns.Close()
	return ns.ID() == s.network()
}

// is says whether a sandbox that goes is this one. The runtime has no name for a network that was found: then the network
// tells. Of an older sandbox of the pod, which it removes when it likes, the network is not there any more.
func (s sandbox) is(id, path string) bool {
	if s.ID != "" {
		return s.ID == id
	}
	if at, err := netns.Identify(path); err == nil && at == s.network() {
		return true
	}
	return !s.stands()
}

func (s sandbox) close() {
	if s.held != nil {
		s.held.Close()
	}
}

// pinned says whether a namespace is mounted at the path, so that the path leads there for as long as it is mounted. A path
// through /proc leads wherever the process is that has the number.
func pinned(path string) bool {
	i, err := os.Lstat(path)
	return err == nil && i.Mode()&fs.ModeSymlink == 0
}

// sandboxes are the node's pods' networks by the uid that the runtime knows the pod by. They outlive the agent in a
// file, and the node's boot ends file and networks together.
type sandboxes struct {
	path string

	mu    sync.Mutex
	byUID map[string]sandbox
}

// loadSandboxes reads the file. Without a usable one, networks are found by looking for them.
func loadSandboxes(path string) (*sandboxes, error) {
	s := &sandboxes{path: path, byUID: map[string]sandbox{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	var read map[string]sandbox
	if err == nil {
		err = json.Unmarshal(b, &read)
	}
	if err != nil {
		return s, fmt.Errorf("read the networks of pods from %s: %w", path, err)
	}
	for uid, box := range read {
		box.stale = true
		if box.Going {
			box.NetNS = ""
		}
		// A network that is not there any more belongs to a pod that went while nobody looked.
		if box.Going || pinned(box.NetNS) && box.stands() {
			s.byUID[uid] = box
		}
	}
	return s, nil
}

func (s *sandboxes) get(uid string) (sandbox, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	box, known := s.byUID[uid]
	return box, known
}

// born notes a sandbox that the runtime has made.
func (s *sandboxes) born(uid string, box sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUID[uid].close()
	s.byUID[uid] = box
	return s.saveLocked()
}

// found notes a network that was found, unless the runtime said meanwhile where it is.
func (s *sandboxes) found(uid string, box sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, known := s.byUID[uid]; known && !(old.gone() && old.stale) {
		box.close()
		return nil
	}
	s.byUID[uid] = box
	return s.saveLocked()
}

// going notes that the runtime is about to remove a sandbox, and says whether it is the pod's present one. path is where
// the runtime says that its network is; it may be empty.
func (s *sandboxes) going(uid, id, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	box, known := s.byUID[uid]
	if !known || box.gone() || !box.is(id, path) {
		return false
	}
	box.ID, box.Going = id, true
	s.byUID[uid] = box
	return true
}

// gone notes that a sandbox has no network any more. That it had one is forgotten with the pod.
func (s *sandboxes) gone(uid, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	box, known := s.byUID[uid]
	if !known || box.ID != id {
		return nil
	}
	box.close()
	s.byUID[uid] = sandbox{ID: id, Namespace: box.Namespace, Name: box.Name, Going: true}
	return s.saveLocked()
}

// keep forgets all sandboxes but those of the pods.
func (s *sandboxes) keep(alive func(uid string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.byUID)
	for uid, box := range s.byUID {
		if !alive(uid) {
			box.close()
			delete(s.byUID, uid)
		}
	}
	if len(s.byUID) == before {
		return nil
	}
	return s.saveLocked()
}

// saveLocked leaves out what the agent that follows has to look for anyway.
func (s *sandboxes) saveLocked() error {
	lasting := map[string]sandbox{}
	for uid, box := range s.byUID {
		if box.held == nil {
			lasting[uid] = box
		}
	}
	b, err := json.Marshal(lasting)
	if err != nil {
		return err
	}
	// Rename without fsync: the file lies in memory.
	temporary := s.path + ".new"
	if err = os.WriteFile(temporary, b, 0o600); err == nil {
		err = os.Rename(temporary, s.path)
	}
	if err != nil {
		return fmt.Errorf("note the networks of pods: %w", err)
	}
	return nil
}

// boxOf is what a request of the plugin says, with the network that it names.
func (f *finder) boxOf(r cni.Request) (sandbox, error) {
	box := sandbox{
		ID: r.Sandbox, NetNS: r.NetNS, Addresses: slices.Clone(r.Addresses), Namespace: r.Namespace, Name: r.Name,
	}
	ns, err := netns.Open(r.NetNS)
	if err != nil {
		return box, err
	}
	box.Device, box.Inode = ns.ID().Device, ns.ID().Inode
	switch {
	case ns.ID() == f.host:
		return box, errors.Join(fmt.Errorf("the runtime says of pod %s/%s that %s is its network, and that is the node's", r.Namespace, r.Name, r.NetNS), ns.Close())
	case pinned(r.NetNS):
		return box, ns.Close()
	}
	box.held = ns
	return box, nil
}
