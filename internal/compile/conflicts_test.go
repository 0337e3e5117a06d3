package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// TestOneChangeAmongManyClaimantsIsLittleWork counts what is compiled and looked at for one more of many entries that ask for one thing: nobody
// who may write entries may stop the control plane with them.
func TestOneChangeAmongManyClaimantsIsLittleWork(t *testing.T) {
	const many = 400
	for name, asked := range map[string]string{
		"an address":     "hosts: [h%d.example.com], resolution: NONE, addresses: [192.0.2.1]",
		"a narrow range": "hosts: [h%d.example.com], resolution: NONE, addresses: [192.0.2.0/24]",
		"a wide range":   "hosts: [h%d.example.com], resolution: NONE, addresses: [198.18.0.0/16]",
		"a host":         "hosts: [h.example.com, h%d.example.com], resolution: DNS",
	} {
		for _, namespaces := range []int{1, many} {
			t.Run(fmt.Sprintf("%s in %d", name, namespaces), func(t *testing.T) {
				p := newPlane(t)
				entry := func(i int, day string) string {
					return serviceEntry(fmt.Sprintf("ns%03d", i%namespaces), fmt.Sprintf("e%03d", i), day, fmt.Sprintf(asked, i))
				}
				// work is what a change costs. A look at each claimant is little; compiling each is not.
				work := func(what string, compiled, looked int, change func()) {
					t.Helper()
					wasCompiled, wasLooked := p.compiled, p.places.looked
					change()
					if got := p.compiled - wasCompiled; got > compiled {
						t.Errorf("when %s, %d objects are compiled, more than %d", what, got, compiled)
					}
					if got := p.places.looked - wasLooked; got > looked {
						t.Errorf("when %s, %d claims are looked at, more than %d", what, got, looked)
					}
				}
				var all strings.Builder
				for i := range many {
					all.WriteString(entry(i, "02"))
				}
				const once = 2*many + 300 // each of them twice, and the addresses of the range
				work("all come", 2*many, once, func() { p.put(all.String()) })
				last := fmt.Sprintf("ns%03d", (many-1)%namespaces)
				few, more := 4, serviceEntry(last, "more", "03", fmt.Sprintf(asked, many))
				if name == "a host" {
					few = 2*many + 4 // of a host all that declare it are compiled, as each has a resource for it
				}
				work("one more comes", few, once, func() { p.put(more) })
				work("it goes", few, once, func() { p.remove(model.ServiceEntryKey(last, "more")) })
				work("the first of all comes", 2*many+4, once, func() { p.put(serviceEntry("ns000", "old", "01", fmt.Sprintf(asked, many))) })
				work("it goes", 2*many+4, once, func() { p.remove(model.ServiceEntryKey("ns000", "old")) })
			})
		}
	}
}

// TestClaimantsFareAsEachWouldFindOut applies random changes to entries, Services, pods and nodes that are after the same few things. Now
// and then what every entry has and is told of others is compared with what it would find by looking at all others itself, and all that was said
// with what a compiler says that sees the outcome only.
func TestClaimantsFareAsEachWouldFindOut(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 9))
		pick := func(options ...string) string { return options[rng.IntN(len(options))] }
		spread, asked := 3, []string{"10.0.0.1", "10.0.0.2, 10.0.0.0/30", "10.0.0.3, 10.0.0.0/8", "10.0.0.0/31", "10.1.0.0/31, 10.1.0.0/16", "240.240.0.0/24", ""}
		if seed%2 == 1 {
			spread, asked = 60, []string{"192.0.2.1", "192.0.2.1, 10.0.0.0/8", "10.1.0.0/31"} // of many namespaces not all are told of
		}
		live := map[model.Key]model.Object{}
		file := filepath.Join(t.TempDir(), "assignments.json")
		load := func() *plane {
			kept, err := LoadAssignments(file, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return newPlaneWith(t, kept)
		}
		p := load()
		for step := range 100 {
			var changes []model.Change
			for range 1 + rng.IntN(4) {
				ns, name := fmt.Sprint("ns", rng.IntN(spread)), fmt.Sprint("x", rng.IntN(3))
				address := pick("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.1.0.1")
				var text string
				switch rng.IntN(20) {
				case 0, 1, 2:
					text = placed{name: name, node: fmt.Sprint("x", rng.IntN(3)), day: pick("01", "02", ""), address: address, spec: pick("", "", onHost),
						meta: pick("", capturedPod, deleted, staticPod), status: pick("", "", "", ", phase: Failed")}.yaml()
					text = strings.Replace(text, "namespace: shop", "namespace: "+ns, 1)
				case 3:
					text = nodeAt(name, pick("01", "02"), address, pick("10.0.0.0/24", "10.1.0.0/31", "10.1.0.0/16", "10.2.0.0/16", "10.0.0.0/8", ""))
				case 4:
					text = fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: %s, creationTimestamp: 2026-01-0%dT00:00:00Z}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n", name, ns, 1+rng.IntN(2), address)
				default:
					text = serviceEntry(ns, name, fmt.Sprint("0", 1+rng.IntN(3)), fmt.Sprintf("hosts: [%s], resolution: NONE, exportTo: [%q], addresses: [%s]",
						pick("h.example.com", name+".example.com", "x0.ns1.svc.cluster.local"), pick("*", "*", "*", ".", "~"),
						pick(asked...)))
				}
				o := decode(t, text)[0]
				if rng.IntN(3) == 0 {
					delete(live, o.Key)
					changes = append(changes, model.Change{Key: o.Key})
				} else {
					live[o.Key] = o
					changes = append(changes, model.Change{Key: o.Key, Object: &o})
				}
			}
			p.Apply(changes)
			if step%10 == 9 {
				p.compareWithEach()
				fresh := load()
				var all []model.Change
				for key, o := range live {
					all = append(all, model.Change{Key: key, Object: &o})
				}
				fresh.Apply(all)
				if got, want := p.versions(), fresh.versions(); !maps.Equal(got, want) {
					t.Errorf("seed %d: the log is\n%v, want\n%v", seed, got, want)
				}
				said, want := p.said(), fresh.said()
				for key := range live {
					if a, b := said[key], want[key]; a.Reason != b.Reason || a.Message != b.Message {
						t.Errorf("seed %d: %s is told %q, want %q", seed, key, a.Message, b.Message)
					}
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for key := range live {
			p.remove(key)
		}
		if left := len(p.workloads.misplaced) + len(p.places.occupants.first) + len(p.places.occupants.outside) + p.places.occupants.inside + p.places.occupants.unknown + len(p.arbiter.asks.by) + len(p.arbiter.asks.right) + len(p.places.claims.by) + len(p.arbiter.ranges.by) + len(p.arbiter.conflicts.addresses) + len(p.arbiter.conflicts.blocks); left != 0 {
			t.Errorf("seed %d: without objects the compiler keeps %d of them", seed, left)
		}
	}
}

// compareWithEach has every entry and every pod find out for itself how it fares.
func (p *plane) compareWithEach() {
	p.t.Helper()
	for key, pod := range p.store.Pods() {
		for _, addr := range p.places.namedAddresses(key) {
			got, other := p.places.owner(key, addr)
			want, _ := p.eachHolder(key, addr)
			if holder, ok := p.store.Pod(want); pod.Spec.HostNetwork && (want == model.NodeKey(pod.Spec.NodeName) || ok && holder.Spec.HostNetwork && holder.Spec.NodeName == pod.Spec.NodeName) {
				want = key
			}
			if honoured, _ := p.eachRange(); want == model.NodeKey(pod.Spec.NodeName) && !(honoured && p.places.stake(pod).fit == translate.FitOutside) {
				want = key
			}
			if got != want || other != (want != key) {
				p.t.Errorf("%s: %s is %s's, want %s's", key, addr, got, want)
			}
		}
	}
	for key, se := range p.store.ServiceEntries() {
		if _, published := translate.EntryVisibility(se); !published {
			continue
		}
		for _, addr := range p.places.namedAddresses(key) {
			got, held := p.places.holder(key, addr)
			if want, wanted := p.eachHolder(key, addr); got != want || held != wanted {
				p.t.Errorf("%s: %s is %s's, want %s's", key, addr, got, want)
			}
		}
		for _, block := range p.places.namedRanges(key) {
			if got, want := p.arbiter.part(key, block), p.eachPart(key, block); !reflect.DeepEqual(got, want) {
				p.t.Errorf("%s: of %s it has %+v, want %+v", key, block, got, want)
			}
		}
		if got, want := p.arbiter.shared(se, key), p.eachShared(key); len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			p.t.Errorf("%s is told\n%+v, want\n%+v", key, got, want)
		}
	}
}

// eachRange says what nodes' ranges mean in the cluster, by all its pods.
func (p *plane) eachRange() (honoured, ranged bool) {
	inside, outside, unknown := 0, 0, 0
	for _, one := range p.store.Pods() {
		if one.Spec.HostNetwork || model.Static(one) || len(translate.OwnAddresses(one)) == 0 {
			continue
		}
		switch on, _ := p.store.Node(one.Spec.NodeName); translate.PodFit(one, on) {
		case translate.FitInside:
			inside++
		case translate.FitOutside:
			outside++
		default:
			unknown++
		}
	}
	return inside > 0 && inside >= 4*outside, inside > 0 && inside >= 4*(outside+unknown)
}

// eachHolder compares all that name an address with one another, as the rules say.
func (p *plane) eachHolder(key model.Key, addr netip.Addr) (best model.Key, ok bool) {
	var services, pods, nodes, hosts []claim
	for _, e := range p.store.Entries() {
		other := e.Object.Key
		if other.Kind == "ServiceEntry" || !slices.Contains(p.places.namedAddresses(other), addr) {
			continue
		}
		of := &pods
		if pod, ok := p.store.Pod(other); ok && pod.Spec.HostNetwork {
			of = &hosts
		} else if other.Kind == "Node" {
			of = &nodes
		} else if other.Kind == "Service" {
			of = &services
		}
		*of = append(*of, p.places.claim(other))
	}
	honoured, ranged := p.eachRange()
	weight := func(x claim) (n int) {
		if x.stake.fit == translate.FitOutside && honoured {
			n += 8
		}
		if x.stake.static {
			n += 4
		}
		if x.stake.leaving {
			n += 2
		}
		if x.stake.fit == translate.FitOutside || x.stake.fit == translate.FitUnknown && ranged {
			n++
		}
		return n
	}
	least := func(all []claim) (least claim) {
		for _, x := range all {
			if (least.key == model.Key{}) || weight(x) < weight(least) || weight(x) == weight(least) && x.before(least) {
				least = x
			}
		}
		return least
	}
	oldest := func(all []claim) (oldest claim) {
		for _, x := range all {
			oldest = oldest.or(x)
		}
		return oldest
	}
	pod, node := least(pods), oldest(nodes)
	if len(nodes) == 0 {
		node = least(hosts)
	}
	weak := pod.stake.fit == translate.FitOutside && honoured
	switch none := (model.Key{}); {
	case len(services) > 0:
		best = oldest(services).key
	case pod.key != none && (node.key == none || pod.stake.fit == translate.FitInside && ranged || pod.stake.captured && !weak):
		best = pod.key
	case node.key != none:
		best = node.key
	default:
		return key, false
	}
	return best, best != key
}

func (p *plane) eachPart(key model.Key, block netip.Prefix) translate.Remains {
	if autoPrefix4.Bits() <= block.Bits() && autoPrefix4.Overlaps(block) {
		return translate.Remains{Holder: "the mesh, which chooses virtual addresses from " + autoPrefix4.String()}
	}
	var within, owner model.Key
	var nodes []netip.Prefix
	for _, e := range p.store.Entries() {
		other := e.Object.Key
		for _, site := range p.places.site(other) {
			nodes = append(nodes, site)
			if site.Overlaps(block) {
				owner = least(owner, other)
			}
		}
		pod, isPod := p.store.Pod(other)
		if other.Kind == "ServiceEntry" || other.Kind != "Node" && other.Namespace == key.Namespace && !(isPod && pod.Spec.HostNetwork) {
			continue
		}
		if slices.ContainsFunc(p.places.namedAddresses(other), block.Contains) {
			within = least(within, other)
		}
	}
	if (within != model.Key{}) && isNarrow(block) {
		return translate.Remains{Holder: within.String()}
	}
	left := translate.Without(block, nodes)
	if len(left.Blocks) == 0 {
		return translate.Remains{Holder: owner.String() + " or pods there"}
	}
	return left
}

func (p *plane) eachShared(key model.Key) (out []translate.Shared) {
	share := func(what string, has func(model.Key) bool, public func(claim) bool) {
		best := map[string]claim{}
		var elsewhere claim
		count := 0
		for other := range p.everyService() {
			x := p.places.claim(other)
			if !x.published || !has(other) {
				continue
			}
			count++
			if y, ok := best[other.Namespace]; !ok || x.before(y) {
				best[other.Namespace] = x
			}
			if public(x) && (elsewhere.key == model.Key{} || x.before(elsewhere)) {
				elsewhere = x
			}
		}
		if count < 2 {
			return
		}
		s := translate.Shared{What: what}
		for _, namespace := range slices.Sorted(maps.Keys(best)) {
			x := best[namespace]
			if namespace != key.Namespace && len(s.Others) < translate.MostOthers {
				s.Others = append(s.Others, x.key.String())
			} else if namespace == key.Namespace && x.key != key {
				s.Here = x.key.String()
			}
		}
		if elsewhere.key != (model.Key{}) {
			s.Elsewhere, s.Everywhere = elsewhere.key.String(), elsewhere.key == key
		}
		out = append(out, s)
	}
	seen := func(x claim) bool { return x.public }
	for _, addr := range p.places.namedAddresses(key) {
		if _, held := p.eachHolder(key, addr); !held {
			share("address "+addr.String(), func(other model.Key) bool {
				return other.Kind == "ServiceEntry" && slices.Contains(p.places.namedAddresses(other), addr)
			}, seen)
		}
	}
	for _, block := range p.places.namedRanges(key) {
		keptOut := func(key model.Key) bool {
			holder := p.eachPart(key, block).Holder
			return holder != "" && !strings.HasSuffix(holder, "or pods there")
		}
		if !keptOut(key) {
			share("range "+block.String(), func(other model.Key) bool {
				return slices.Contains(p.places.namedRanges(other), block) && !keptOut(other)
			}, seen)
		}
	}
	se, _ := p.store.ServiceEntry(key)
	for _, h := range translate.EntryHosts(se) {
		if p.hosts.speaks(key, h) {
			share("host "+h, func(other model.Key) bool { return p.hosts.speaks(other, h) }, func(x claim) bool {
				return x.isService() || x.public && p.index.names.ofOthers(h, x.key.Namespace) == ""
			})
		}
	}
	return out
}

// everyService lists what may declare hosts and addresses.
func (p *plane) everyService() map[model.Key]bool {
	out := map[model.Key]bool{}
	for key := range p.store.Services() {
		out[key] = true
	}
	for key := range p.store.ServiceEntries() {
		out[key] = true
	}
	return out
}
