package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/statefile"
)

// The ranges that virtual addresses of ServiceEntries without addresses are taken from. They are Istio's: the first is reserved and
// routed nowhere, the second is for benchmarks.
var (
	autoPrefix4 = netip.MustParsePrefix("240.240.0.0/16")
	autoPrefix6 = netip.MustParsePrefix("2001:2::/48")
)

// Assignments is what the control plane once chose and must go on choosing: the virtual addresses that clients have resolved, the
// names under which proxies know policies, and the objects that are not behind their waypoints yet. It survives a restart in a file. It is not safe for concurrent use.
type Assignments struct {
	path  string
	dirty bool
	taken map[netip.Addr]string // address → service
	// shared is nil unless other control planes choose as well.
	shared *sharedAssignments

	// Addresses are those of services, by wire name ("namespace/host"): one of each family.
	Addresses map[string][]netip.Addr `json:"addresses"`
	// Policies are the names of policies, by object ("Kind namespace/name").
	Policies map[string]PolicyName `json:"policies"`
	// Waiting are the objects whose connections do not go through the waypoint that their labels ask for, since it is not ready, by the names of
	// their ties. Each has a line. In a file that is the waypoint that they go through until then, empty if they go direct: every version reads that.
	// Several control planes need more; see note.
	Waiting map[string]string `json:"waiting,omitempty"`

	// others are the fields of a file that a later version wrote. They stay there.
	others map[string]json.RawMessage
}

// PolicyName is how proxies know a policy at present.
type PolicyName struct {
	// Plain is what the policy was bound to when its name was its object's own; Bound is what it is bound to now, under Name.
	Plain string `json:"plain"`
	Bound string `json:"bound"`
	Name  string `json:"name"`
	// Made counts the names that were made for it: none of them comes back.
	Made int `json:"made,omitempty"`
}

// NewAssignments keeps what it is told in memory only.
func NewAssignments() *Assignments {
	return &Assignments{taken: map[netip.Addr]string{}, Addresses: map[string][]netip.Addr{}, Policies: map[string]PolicyName{}, Waiting: map[string]string{}}
}

// LoadAssignments reads a file and keeps it up to date; a file that is not there is made with the first assignment. One that cannot be
// used is set aside, and the damage says so: what it held is chosen anew, which most of it would be in the same way.
func LoadAssignments(path string, now time.Time) (a *Assignments, damage error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		a = NewAssignments()
		a.path = path
		return a, nil
	}
	if err == nil {
		a = NewAssignments()
		if err = a.read(data); err == nil {
			a.path = path
			return a, nil
		}
	}
	a = NewAssignments() // without what was read of it
	const meaning = "virtual addresses of ServiceEntries and names of policies are chosen anew"
	aside, failed := statefile.SetAside(path, now)
	if failed != nil {
		// Not kept on disk either, so that what is there stays for people to look at.
		return a, fmt.Errorf("%s cannot be used: %w, nor be set aside: %w; %s and are not kept: remove the file and restart the control plane", path, err, failed, meaning)
	}
	a.path = path
	return a, fmt.Errorf("%s could not be used: %w; it is now %s and %s: to have the old ones, stop the control plane, repair the file and put it back", path, err, aside, meaning)
}

func (a *Assignments) read(data []byte) error {
	if err := json.Unmarshal(data, a); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &a.others); err != nil {
		return err
	}
	for _, known := range []string{"addresses", "policies", "waiting"} {
		delete(a.others, known)
	}
	if a.Addresses == nil {
		a.Addresses = map[string][]netip.Addr{}
	}
	if a.Policies == nil {
		a.Policies = map[string]PolicyName{}
	}
	if a.Waiting == nil {
		a.Waiting = map[string]string{}
	}
	if err := CheckAddresses(a.Addresses); err != nil {
		return err
	}
	for service, addresses := range a.Addresses {
		for _, addr := range addresses {
			a.taken[addr] = service
		}
	}
	return nil
}

// CheckAddresses refuses virtual addresses, by service, that nobody has chosen: out of the ranges, or of two services at once.
func CheckAddresses(kept map[string][]netip.Addr) error {
	taken := map[netip.Addr]string{}
	for service, addresses := range kept {
		for _, addr := range addresses {
			if !autoPrefix4.Contains(addr) && !autoPrefix6.Contains(addr) {
				return fmt.Errorf("address %s of %s is in neither %s nor %s", addr, service, autoPrefix4, autoPrefix6)
			}
			if other, ok := taken[addr]; ok {
				return fmt.Errorf("address %s belongs to both %s and %s", addr, other, service)
			}
			taken[addr] = service
		}
	}
	return nil
}

// save writes what changed, so that it is there before anybody is told of it.
func (a *Assignments) save() error {
	if !a.dirty || a.path == "" {
		return nil
	}
	data, err := a.encode()
	if err != nil {
		return fmt.Errorf("write assignments: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(a.path), filepath.Base(a.path)+".*")
	if err != nil {
		return fmt.Errorf("write assignments: %w", err)
	}
	_, err = temporary.Write(append(data, '\n'))
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), a.path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("write assignments: %w", err)
	}
	a.dirty = false
	return nil
}

// encode is what the file is to hold, with the fields of a later version that it had.
func (a *Assignments) encode() ([]byte, error) {
	if len(a.others) == 0 {
		return json.MarshalIndent(a, "", "  ")
	}
	own, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(a.others)
	if err := json.Unmarshal(own, &all); err != nil {
		return nil, err
	}
	return json.MarshalIndent(all, "", "  ")
}

// addresses are a service's virtual addresses, chosen now, one of each range, if it has none.
func (a *Assignments) addresses(service string, choose func(netip.Prefix) (netip.Addr, bool)) []netip.Addr {
	if have := a.Addresses[service]; len(have) > 0 {
		return have
	}
	if a.shared != nil {
		a.shared.want(service)
		return nil
	}
	var chosen []netip.Addr
	for _, prefix := range []netip.Prefix{autoPrefix4, autoPrefix6} {
		if addr, ok := choose(prefix); ok {
			chosen = append(chosen, addr)
			a.taken[addr] = service
		}
	}
	if len(chosen) > 0 {
		a.Addresses[service] = chosen
		a.dirty = true
	}
	return chosen
}

// choose takes the first free address from where the service's name points to, so that most would be chosen again even without the file. used
// tells which addresses somebody else has.
func (a *Assignments) choose(service string, prefix netip.Prefix, used func(netip.Addr) bool) (netip.Addr, bool) {
	sum := sha256.Sum256([]byte(service))
	start := binary.BigEndian.Uint16(sum[:])
	const size = 1 << 16
	base := prefix.Addr().AsSlice()
	for i := range size {
		slot := start + uint16(i)
		if slot == 0 || slot == size-1 {
			continue // the range's own address and its broadcast address
		}
		binary.BigEndian.PutUint16(base[len(base)-2:], slot)
		addr, _ := netip.AddrFromSlice(base)
		if _, ok := a.taken[addr]; !ok && !used(addr) {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// evict takes an address away from the service that it was chosen for, and with it the service's others. It returns that service.
func (a *Assignments) evict(addr netip.Addr) (service string, ok bool) {
	if service, ok = a.taken[addr]; ok {
		if a.shared != nil {
			a.drop(service, addr)
			return service, true
		}
		a.release(service)
	}
	return service, ok
}

// release gives a service's addresses back. Those that other control planes may still publish stay where they are, until nobody has needed
// them for long.
func (a *Assignments) release(service string) {
	if s := a.shared; s != nil {
		delete(s.wanted, service)
		delete(s.denied, service)
		return
	}
	for _, addr := range a.Addresses[service] {
		delete(a.taken, addr)
		a.dirty = true
	}
	delete(a.Addresses, service)
}

// keep forgets what belongs to nothing.
func (a *Assignments) keep(service, policy, tied func(string) bool) {
	for name := range a.Waiting {
		if !tied(name) {
			a.arrived(name)
		}
	}
	for name := range a.Addresses {
		if !service(name) {
			a.release(name)
		}
	}
	for name := range a.Policies {
		if !policy(name) {
			delete(a.Policies, name)
			a.dirty = true
		}
	}
}

// policyName is the name under which proxies are to know a policy that is bound to certain workloads. A workload names its policies, and
// proxies learn of the policy and of the workload one after the other: under one name a policy must never mean other workloads, or
// its new rules would for a moment meet those that it no longer covers. So another binding gets another name; the first is the object's
// own. anew asks for another name although the binding is the same, for content that must not meet what workloads still name.
//
// Where several control planes name policies, each knows another history, and proxies move between them: there the first name tells the
// binding, too, unless that is everybody (broad), so that no two mean different workloads by one name.
func (a *Assignments) policyName(object, own, binding, content string, broad, anew bool) string {
	have, known := a.Policies[object]
	first := own
	// One that it had under an earlier binding may be what a proxy that lags still has its workloads name.
	again := known && have.Bound != binding && anew
	if a.shared != nil && !broad {
		first = own + "~" + digest(binding)[:8]
	}
	switch {
	case known && have.Bound == binding && !anew:
		return have.Name
	case a.shared != nil && (!known || have.Bound != binding) && !again:
		have = PolicyName{Plain: binding, Bound: binding, Name: first, Made: have.Made}
	case !known:
		have = PolicyName{Plain: binding, Bound: binding, Name: own}
	case a.shared == nil && have.Plain == binding && have.Name != own && !again:
		have.Bound, have.Name = binding, own
	default:
		// By binding and content alone it would be a name that it had before, and under which it may have been edited in place since.
		have.Made++
		have.Bound, have.Name = binding, own+"~"+digest(binding, content, strconv.Itoa(have.Made))[:8]
	}
	a.Policies[object] = have
	a.dirty = true
	return have.Name
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// waiting says which way the connections of an object go that is not behind its waypoint yet; empty is direct.
func (a *Assignments) waiting(name string) (way string, ok bool) {
	text, ok := a.Waiting[name]
	if !ok || a.shared != nil && a.shared.freed[name] {
		return "", false
	}
	return readNote(text).way, true
}

// settled says whether an object was let go to the waypoint that it asked for.
func (a *Assignments) settled(name string) bool { return a.shared != nil && Settled(a.Waiting[name]) }

// mayGo says whether another control plane has heard that an object may go to the waypoint that it asks for.
func (a *Assignments) mayGo(name, asked string) bool {
	if a.shared == nil || a.shared.freed[name] {
		return false
	}
	return readNote(a.Waiting[name]).letsGo(asked)
}

// wait takes note of an object whose connections go another way than its labels say, or that may go there once this is written down.
func (a *Assignments) wait(name string, n note) {
	have, ok := a.Waiting[name]
	switch {
	case a.shared != nil:
		a.shared.hold(name, n, ok && n.in(have))
	case !ok || have != n.way:
		a.Waiting[name] = n.way
		a.dirty = true
	}
}

// bound takes note that an object is behind its waypoint. Where other control planes keep the memory the line stays for a while, so that all of them read it.
func (a *Assignments) bound(name string) {
	if a.shared == nil {
		a.arrived(name)
		return
	}
	if n, ok := a.shared.held[name]; ok && !n.settled {
		a.shared.unhold(name)
	}
}

// affirm corrects what another control plane wrote of an object that is behind its waypoint: that one had not heard of it.
func (a *Assignments) affirm(name, asked string) {
	if text, ok := a.Waiting[name]; ok && a.shared != nil {
		if n := readNote(text); n.about(asked) && !n.settled {
			a.shared.hold(name, settledNote(asked), false)
		}
	}
}

// arrived forgets an object that has no waypoint to wait for.
func (a *Assignments) arrived(name string) {
	_, ok := a.Waiting[name]
	if a.shared != nil {
		a.shared.release(name, ok)
		return
	}
	if ok {
		delete(a.Waiting, name)
		a.dirty = true
	}
}
