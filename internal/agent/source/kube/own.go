package kube

import (
	"fmt"
	"os"
	"path/filepath"

	"lateen.dev/lateen/internal/agent/netns"
)

// OwnNetworks opens the networks that are the node's pods' own: those that the runtime mounts, in the folder mounts; those
// that an agent noted in file; and of a pod that has neither, those that its processes keep. It leaves alone what runs in a pod made
// itself, as a tenant that has users of its own does, or a mesh within a pod: nobody captured it, and what is done there
// is in the hands of whoever made it. proc is the node's /proc. Those that there was no looking at are named in unseen; the
// caller closes the others.
func OwnNetworks(proc, mounts, file string) (own []*netns.Namespace, unseen []string, err error) {
	f, err := newFinder(proc, mounts)
	if err != nil {
		return nil, nil, err
	}
	mounted := f.mounted()
	// If the file is missing, the networks are found by the pods' processes.
	boxes, _ := loadSandboxes(file)
	for _, box := range boxes.byUID {
		if !box.gone() {
			mounted[box.network()] = box.NetNS
		}
	}
	for id, path := range mounted {
		// A path that cannot be opened is not a namespace, or it is gone.
		ns, openErr := netns.Open(path)
		switch {
		case openErr != nil:
		case ns.ID() != id || id == f.host:
			ns.Close()
		default:
			own = append(own, ns)
		}
	}
	seen := map[string]*traces{}
	err = eachProcess(proc, func(dir *os.File, uid string) {
		t := seen[uid]
		if t == nil {
			t = newTraces()
			seen[uid] = t
		}
		if lookErr := f.look(dir, mounted, t); lookErr != nil {
			t.err = lookErr
		}
	})
	taken := map[netns.ID]bool{}
	for uid, t := range seen {
		alone := len(t.mounted) == 0 && !t.host
		for id, ns := range t.loose {
			if !alone || taken[id] {
				ns.Close()
				continue
			}
			taken[id] = true
			own = append(own, ns)
		}
		switch {
		case !alone:
		case t.err != nil:
			unseen = append(unseen, fmt.Sprintf("pod %s: %v", uid, t.err))
		case t.more:
			unseen = append(unseen, fmt.Sprintf("pod %s: its processes are in more than %d networks", uid, maxLoose))
		}
	}
	if err != nil {
		for _, ns := range own {
			ns.Close()
		}
		return nil, nil, fmt.Errorf("look for the pods' processes in %s: %w", filepath.Clean(proc), err)
	}
	return own, unseen, nil
}
