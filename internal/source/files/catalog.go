package files

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// catalog decides which object of which file is live. A file's bad objects leave their last good versions live; of two objects that
// exclude each other the one that is live stays, and at first sight the one that comes first by file and line.
// It knows no file system.
type catalog struct {
	files     map[string]*fileState
	claims    map[model.Key][]*Object
	live      map[model.Key]*Object
	addresses map[netip.Addr]model.Key // cluster IPs of live services
	waiting   map[netip.Addr]map[model.Key]bool
	conflicts map[model.Key][]Problem
}

type fileState struct {
	objects  []*Object
	problems []Problem
}

func newCatalog() *catalog {
	return &catalog{
		files: map[string]*fileState{}, claims: map[model.Key][]*Object{}, live: map[model.Key]*Object{},
		addresses: map[netip.Addr]model.Key{}, waiting: map[netip.Addr]map[model.Key]bool{}, conflicts: map[model.Key][]Problem{},
	}
}

// set replaces what a file says. keepMissing keeps objects that the file no longer holds: it may be in the middle of being written.
func (c *catalog) set(file string, objects []Object, problems []Problem, keepMissing bool) []model.Change {
	next := &fileState{problems: problems}
	present := map[model.Key]bool{}
	for i := range objects {
		next.objects = append(next.objects, &objects[i])
		present[objects[i].Key] = true
	}
	if old := c.files[file]; old != nil {
		for _, o := range old.objects {
			if !present[o.Key] && (keepMissing || damaged(problems, o.Key)) {
				next.objects = append(next.objects, o)
			}
		}
	}
	return c.replace(file, next)
}

// remove forgets a file.
func (c *catalog) remove(file string) []model.Change { return c.replace(file, nil) }

// damaged says whether an object that a file no longer holds may only be unreadable there.
func damaged(problems []Problem, key model.Key) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Severity == Refused && (p.key == model.Key{} || p.key == key)
	})
}

func (c *catalog) replace(file string, next *fileState) []model.Change {
	affected := map[model.Key]bool{}
	if old := c.files[file]; old != nil {
		for _, o := range old.objects {
			affected[o.Key] = true
			c.claims[o.Key] = slices.DeleteFunc(c.claims[o.Key], func(x *Object) bool { return x.File == file })
		}
	}
	if next == nil {
		delete(c.files, file)
	} else {
		c.files[file] = next
		for _, o := range next.objects {
			affected[o.Key] = true
			c.claims[o.Key] = append(c.claims[o.Key], o)
		}
	}
	queue := slices.SortedFunc(maps.Keys(affected), model.Key.Compare)
	changes := map[model.Key]model.Change{}
	// A key is looked at again when another gives up an address it waits for or takes one it only still has. An address goes to one
	// that claims it and is never taken from one that does, so this ends.
	for len(queue) > 0 {
		key := queue[0]
		queue = queue[1:]
		change, freed, displaced := c.resolve(key)
		if change != nil {
			changes[key] = *change
		}
		queue = append(queue, displaced...)
		for _, addr := range freed {
			queue = append(queue, slices.SortedFunc(maps.Keys(c.waiting[addr]), model.Key.Compare)...)
			delete(c.waiting, addr)
		}
	}
	out := make([]model.Change, 0, len(changes))
	for _, key := range slices.SortedFunc(maps.Keys(changes), model.Key.Compare) {
		out = append(out, changes[key])
	}
	return out
}

// resolve chooses the live object of a key among those that claim it. It returns what changed, the addresses that became free, and
// the keys whose last good version lost its address to this one.
func (c *catalog) resolve(key model.Key) (change *model.Change, freed []netip.Addr, displaced []model.Key) {
	claims := slices.Clone(c.claims[key])
	if len(claims) == 0 {
		delete(c.claims, key)
	}
	live := c.live[key]
	slices.SortStableFunc(claims, func(a, b *Object) int {
		return cmp.Or(compareBool(live != nil && a.File == live.File, live != nil && b.File == live.File),
			strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	delete(c.conflicts, key)
	var chosen *Object
	for _, o := range claims {
		switch taken := c.taken(o); {
		case chosen != nil:
			c.conflicts[key] = append(c.conflicts[key], Problem{File: o.File, Line: o.Line, Object: key.String(), key: key,
				Message: fmt.Sprintf("is already defined at %s:%d", chosen.File, chosen.Line), Fix: "remove one of the two; the other stays live until then"})
		case taken != nil:
			c.conflicts[key] = append(c.conflicts[key], *taken)
		default:
			chosen = o
		}
	}
	if chosen == nil && live != nil && c.ownsAddresses(live) && slices.ContainsFunc(claims, func(o *Object) bool { return o.File == live.File }) {
		chosen = live // its file asks for what it cannot have: the last good version stays
	}
	switch {
	case chosen == live, chosen != nil && live != nil && same(chosen, live):
		return nil, nil, nil
	case live != nil:
		for _, addr := range serviceAddresses(live) {
			if c.addresses[addr] == key {
				delete(c.addresses, addr)
				freed = append(freed, addr)
			}
		}
	}
	if chosen == nil {
		delete(c.live, key)
		return &model.Change{Key: key}, freed, nil
	}
	c.live[key] = chosen
	for _, addr := range serviceAddresses(chosen) {
		if owner, ok := c.addresses[addr]; ok && owner != key {
			displaced = append(displaced, owner)
		}
		c.addresses[addr] = key
	}
	freed = slices.DeleteFunc(freed, func(a netip.Addr) bool { return c.addresses[a] == key })
	return &model.Change{Key: key, Object: chosen}, freed, displaced
}

func (c *catalog) ownsAddresses(o *Object) bool {
	return !slices.ContainsFunc(serviceAddresses(o), func(a netip.Addr) bool { return c.addresses[a] != o.Key })
}

// claimed says whether some file still gives an address to a key. If none does, the key is on its way to another.
func (c *catalog) claimed(key model.Key, addr netip.Addr) bool {
	return slices.ContainsFunc(c.claims[key], func(o *Object) bool { return slices.Contains(serviceAddresses(o), addr) })
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func same(a, b *Object) bool {
	return a.File == b.File && a.Line == b.Line && a.APIVersion == b.APIVersion && bytes.Equal(a.JSON, b.JSON)
}

// taken says which live service already has one of an object's addresses, and makes the object wait for it.
func (c *catalog) taken(o *Object) *Problem {
	for _, addr := range serviceAddresses(o) {
		owner, ok := c.addresses[addr]
		if !ok || owner == o.Key || !c.claimed(owner, addr) {
			continue
		}
		if c.waiting[addr] == nil {
			c.waiting[addr] = map[model.Key]bool{}
		}
		c.waiting[addr][o.Key] = true
		other := c.live[owner]
		return &Problem{File: o.File, Line: o.Line, Object: o.Key.String(), Field: "spec.clusterIP", key: o.Key,
			Message: fmt.Sprintf("address %s already belongs to %s (%s:%d)", addr, owner, other.File, other.Line),
			Fix:     "choose another address, or leave clusterIP out to get one"}
	}
	return nil
}

func serviceAddresses(o *Object) []netip.Addr {
	svc, ok := o.Value.(*corev1.Service)
	if !ok {
		return nil
	}
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, ip := range ips {
		if addr, err := netip.ParseAddr(ip); err == nil {
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// problems lists everything that is wrong now, by file and line.
func (c *catalog) problems() []Problem {
	var out []Problem
	for _, f := range c.files {
		out = append(out, f.problems...)
	}
	for _, p := range c.conflicts {
		out = append(out, p...)
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Field, b.Field))
	})
	return out
}
