package compile

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/model"
)

// underIstio is an entry of a namespace that Istio gave addresses to.
func underIstio(t *testing.T, namespace, name, day string, addresses ...string) model.Change {
	t.Helper()
	host := name + ".example.com"
	ch := changes(t, serviceEntry(namespace, name, day, "hosts: ["+host+"], resolution: DNS"))[0]
	se := ch.Object.Value.(*networkingv1.ServiceEntry)
	for _, a := range addresses {
		se.Status.Addresses = append(se.Status.Addresses, &networkingapi.ServiceEntryAddress{Host: host, Value: a})
	}
	return ch
}

// planes are one whose choices are its own, and one that shares them.
func planes(t *testing.T, test func(t *testing.T, p *plane, put func(...model.Change))) {
	for name, assignments := range map[string]*Assignments{"alone": NewAssignments(), "among several control planes": ShareAssignments(&memoryStore{}, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			p := newPlaneWith(t, assignments)
			test(t, p, func(changes ...model.Change) {
				p.Apply(changes)
				if err := p.Keep(context.Background()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestAddressesOfIstioAreKept(t *testing.T) {
	planes(t, func(t *testing.T, p *plane, put func(...model.Change)) {
		put(underIstio(t, "shop", "a", "01", "240.240.0.1", "2001:2::1"), underIstio(t, "shop", "b", "01", "240.240.0.2"), underIstio(t, "shop", "none", "01"))
		if got := addressOf(p, "shop/a.example.com"); got != "[240.240.0.1 2001:2::1]" {
			t.Errorf("a has %s", got)
		}
		if got := addressOf(p, "shop/b.example.com"); !strings.HasPrefix(got, "[240.240.0.2 2001:2::") {
			t.Errorf("b has %s, want what it had of one family and one of the other", got)
		}
		if got := addressOf(p, "shop/none.example.com"); got == "[]" || strings.Contains(got, "240.240.0.") {
			t.Errorf("the one without has %s", got)
		}
		// A chosen address stays, whatever the status says later.
		put(underIstio(t, "shop", "a", "01", "240.240.0.77"))
		if got := addressOf(p, "shop/a.example.com"); got != "[240.240.0.1 2001:2::1]" {
			t.Errorf("later a has %s", got)
		}
		put(model.Change{Key: model.ServiceEntryKey("shop", "a")}, model.Change{Key: model.ServiceEntryKey("shop", "b")})
		if len(p.allocator.inherited.of)+len(p.allocator.inherited.by)+len(p.allocator.inherited.right) > 0 {
			t.Errorf("left: %v", p.allocator.inherited)
		}
	})
}

// A status is a wish: who may write one gets nothing that is another's, and nothing that is no virtual address.
func TestAStatusTakesNothingFromOthers(t *testing.T) {
	planes(t, func(t *testing.T, p *plane, put func(...model.Change)) {
		put(changes(t, serviceEntry("shop", "mine", "03", "hosts: [mine.example.com], resolution: DNS")+
			serviceEntry("shop", "asks", "03", "hosts: [asks.example.com], resolution: STATIC, addresses: [240.240.9.9]"))...)
		before := addressOf(p, "shop/mine.example.com")
		taken := strings.Fields(strings.Trim(before, "[]"))
		put(underIstio(t, "tenant", "chosen", "01", taken...), underIstio(t, "tenant", "asked", "01", "240.240.9.9"),
			underIstio(t, "tenant", "out", "01", "10.96.0.1", "fd00::1"), underIstio(t, "tenant", "edge", "01", "240.240.0.0", "2001:2::"),
			underIstio(t, "tenant", "last", "01", "240.240.255.255"), underIstio(t, "tenant", "odd", "01", "nowhere", "::ffff:240.240.7.7"))
		if got := addressOf(p, "shop/mine.example.com"); got != before {
			t.Errorf("another namespace's entry moved from %s to %s", before, got)
		}
		for _, name := range []string{"chosen", "asked", "out", "edge", "last"} {
			got := addressOf(p, "tenant/"+name+".example.com")
			for _, text := range strings.Fields(strings.Trim(got, "[]")) {
				addr := netip.MustParseAddr(text)
				if strings.Contains(before, text) || text == "240.240.9.9" || !isVirtual(addr) {
					t.Errorf("%s has %s", name, got)
				}
			}
			if len(strings.Fields(got)) != 2 {
				t.Errorf("%s has %s, want one of each family", name, got)
			}
		}
		if got := addressOf(p, "tenant/odd.example.com"); !strings.HasPrefix(got, "[240.240.7.7 ") {
			t.Errorf("odd has %s", got)
		}
	})
}

func TestTheOldestOfThoseThatIstioGaveOneAddressKeepsIt(t *testing.T) {
	planes(t, func(t *testing.T, p *plane, put func(...model.Change)) {
		var all []model.Change
		for i, name := range []string{"a", "b", "c"} {
			all = append(all, underIstio(t, "shop", name, fmt.Sprintf("0%d", 3-i), "240.240.0.1"))
		}
		put(all...)
		for name, want := range map[string]bool{"a": false, "b": false, "c": true} {
			got := addressOf(p, "shop/"+name+".example.com")
			if strings.HasPrefix(got, "[240.240.0.1 ") != want || got == "[]" {
				t.Errorf("%s has %s", name, got)
			}
		}
	})
}

// A host whose hash is an address that another is about to inherit gets another one, in either order.
func TestNobodyIsGivenWhatAnotherInherits(t *testing.T) {
	for seed := range 8 {
		planes(t, func(t *testing.T, p *plane, put func(...model.Change)) {
			hash, _ := NewAssignments().choose("shop/x.example.com", autoPrefix4, func(netip.Addr) bool { return false })
			put(underIstio(t, "shop", "x", "01"), underIstio(t, "shop", fmt.Sprint("heir", seed), "02", hash.String()))
			if got := addressOf(p, fmt.Sprintf("shop/heir%d.example.com", seed)); !strings.HasPrefix(got, "["+hash.String()+" ") {
				t.Errorf("the heir has %s, want %s", got, hash)
			}
			if got := addressOf(p, "shop/x.example.com"); got == "[]" || strings.Contains(got, hash.String()+" ") {
				t.Errorf("the other has %s", got)
			}
		})
	}
}

// A host that is denied an address keeps nobody else from it by wishing for it.
func TestAWishThatIsDeniedBlocksNobody(t *testing.T) {
	size := len("tenant/a-00.example.com") + addressesSize
	s := &memoryStore{}
	p := newPlaneWith(t, ShareAssignments(s, 30*size))
	for i := range 10 {
		p.put(entryOf("tenant", fmt.Sprint("a", i), 10))
	}
	p.Apply([]model.Change{underIstio(t, "tenant", "late", "01", "240.240.0.1")})
	_ = p.Keep(context.Background())
	if got := addressOf(p, "tenant/late.example.com"); got != "[]" {
		t.Fatalf("the tenant has room for %s: the test says nothing", got)
	}
	p.Apply([]model.Change{underIstio(t, "shop", "young", "02", "240.240.0.1")})
	_ = p.Keep(context.Background())
	if got := addressOf(p, "shop/young.example.com"); !strings.HasPrefix(got, "[240.240.0.1 ") {
		t.Errorf("the younger one has %s", got)
	}
}

// An address that is kept for others counts before a status, also when that comes to light while writing.
func TestWhatIsKeptCountsBeforeAStatus(t *testing.T) {
	s := &memoryStore{kept: map[string][]netip.Addr{"shop/first.example.com": {netip.MustParseAddr("240.240.0.1")}}}
	p := newPlaneWith(t, ShareAssignments(s, 1<<20))
	s.err = errors.New("away")
	p.Apply([]model.Change{underIstio(t, "shop", "first", "02"), underIstio(t, "tenant", "x", "01", "240.240.0.1")})
	if err := p.Keep(t.Context()); err == nil {
		t.Fatal("the store is not away")
	}
	s.err = nil
	if err := p.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := addressOf(p, "shop/first.example.com"); got != "[240.240.0.1]" {
		t.Errorf("the one that is kept has %s", got)
	}
	if got := addressOf(p, "tenant/x.example.com"); got == "[]" || strings.Contains(got, "240.240.0.1 ") {
		t.Errorf("the other has %s", got)
	}
}
