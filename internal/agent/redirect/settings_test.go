package redirect

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

func TestParsesPorts(t *testing.T) {
	for text, want := range map[string][]uint16{
		"": nil, " ": nil, "80": {80}, "443, 80,443": {80, 443}, "65535": {65535}, "1": {1},
	} {
		if got, err := ParsePorts(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "65536", "-1", "http", "80,", ",80", "80;443", "8 0", "80-90", strings.Repeat("9,", 20) + "x"} {
		if got, err := ParsePorts(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
	var many []string
	for i := range MaxEntries + 1 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String())
	}
	if _, err := ParseRanges(strings.Join(many, ",")); err == nil {
		t.Error("more rules than a connection should have to pass")
	}
	if got, err := ParseRanges(strings.Join(many[1:], ",")); err != nil || len(got) != MaxEntries {
		t.Errorf("%v, %v", got, err)
	}
}

func TestParsesRanges(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "10.0.0.0/8": "[10.0.0.0/8]", "fd00::/8,10.1.2.3": "[10.1.2.3/32 fd00::/8]", "0.0.0.0/0": "[0.0.0.0/0]", "::1": "[::1/128]",
	} {
		if got, err := ParseRanges(text); err != nil || strings.ReplaceAll(join(got), ", ", " ") != strings.Trim(want, "[]") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"10.0.0.1/8", "10.0.0.0/33", "*", "fe80::1%eth0", "::ffff:10.0.0.0/104", "10.0.0.0/8,", "host"} {
		if got, err := ParseRanges(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestParsesInterfaces(t *testing.T) {
	if got, err := ParseInterfaces("net1, k6t-net0"); err != nil || !slices.Equal(got, []string{"k6t-net0", "net1"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"a/b", "..", "lo", "averyveryverylongname", "a b", "eth0:1", "a,"} {
		if got, err := ParseInterfaces(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Whatever is read is what is written back.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"80,443", "10.0.0.0/8, fd00::/8", "net1", ",", "::ffff:1.2.3.4", "65536"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ports, err := ParsePorts(s); err == nil {
			if again, err := ParsePorts(join(ports)); err != nil || !slices.Equal(ports, again) || slices.Contains(ports, 0) {
				t.Errorf("%q: %v, then %v, %v", s, ports, again, err)
			}
		}
		if ranges, err := ParseRanges(s); err == nil {
			if again, err := ParseRanges(join(ranges)); err != nil || !slices.Equal(ranges, again) {
				t.Errorf("%q: %v, then %v, %v", s, ranges, again, err)
			}
			_ = ruleset(ourTable(), Capturing, Settings{OutboundRanges: ranges, OnlyRanges: ranges})
		}
		if names, err := ParseInterfaces(s); err == nil {
			if again, err := ParseInterfaces(join(names)); err != nil || !slices.Equal(names, again) {
				t.Errorf("%q: %v, then %v, %v", s, names, again, err)
			}
		}
	})
}

func with(t *testing.T, w *world, s Settings) {
	t.Helper()
	if _, err := Apply(w.pod, Capturing, s); err != nil {
		t.Fatal(err)
	}
	if changed, err := Apply(w.pod, Capturing, s); err != nil || changed {
		t.Errorf("applying twice: changed %v, %v", changed, err)
	}
}

func TestExcludedPortsPassByTheProxy(t *testing.T) {
	w := newWorld(t)
	peerOther := netnstest.Listen(t, w.peer, "0.0.0.0:9090")
	with(t, w, Settings{InboundPorts: []uint16{8080}, OutboundPorts: []uint16{9090}})
	open(t, w.peer, "", podAddress+appPort, w.app)
	open(t, w.peer, "", podAddress+":8081", w.inbound)
	open(t, w.pod, "", peerAddress+":9090", peerOther)
	open(t, w.pod, "", peerAddress+appPort, w.outbound)
	// Back to everything.
	with(t, w, Settings{})
	open(t, w.peer, "", podAddress+appPort, w.inbound)
	open(t, w.pod, "", peerAddress+":9090", w.outbound)
}

func TestExcludedRangesPassByTheProxy(t *testing.T) {
	w := newWorld(t)
	with(t, w, Settings{OutboundRanges: []netip.Prefix{netip.MustParsePrefix(peerAddress + "/31"), netip.MustParsePrefix("fd00::/8")}})
	open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	open(t, w.pod, "", "192.0.2.1:8080", w.outbound)
	open(t, w.peer, "", podAddress+appPort, w.inbound)
}

func TestOnlyIncludedRangesAreCaptured(t *testing.T) {
	w := newWorld(t)
	with(t, w, Settings{OnlyRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	open(t, w.pod, "", "192.0.2.1:8080", w.outbound)
	open(t, w.peer, "", podAddress+appPort, w.inbound)
	with(t, w, Settings{OnlyRanges: []netip.Prefix{}})
	open(t, w.pod, "", peerAddress+appPort, w.peerApp)
	if got := observe(t, w.pod); got != Capturing {
		t.Errorf("observed %v", got)
	}
}

func TestBypassedInboundStillTakesTunnels(t *testing.T) {
	w := newWorld(t)
	with(t, w, Settings{BypassInbound: true})
	open(t, w.peer, "", podAddress+appPort, w.app)
	open(t, w.peer, "", podAddress+":15008", w.tunnel)
	open(t, w.pod, "", peerAddress+appPort, w.outbound)
}

// Nothing captured at all is still not the same as released: an agent that comes back must know the pod for its own.
func TestAPodThatAsksForEverythingToPassIsStillObserved(t *testing.T) {
	w := newWorld(t)
	with(t, w, Settings{BypassInbound: true, OnlyRanges: []netip.Prefix{}})
	if got := observe(t, w.pod); got != Capturing {
		t.Errorf("observed %v", got)
	}
	apply(t, w.pod, Draining)
	if got := observe(t, w.pod); got != Draining {
		t.Errorf("observed %v", got)
	}
}

// What comes out of a virtual machine in the pod is the pod's outbound traffic.
func TestVirtualInterfacesAreOutbound(t *testing.T) {
	w := newWorld(t)
	vm := netnstest.Pod(t, w.pod, "vm0", "10.77.0.2")
	netnstest.In(t, w.pod, func(h *netlink.Handle) error {
		l, err := h.LinkByName("vm0")
		if err != nil {
			return err
		}
		return h.AddrAdd(l, &netlink.Addr{IPNet: netlink.NewIPNet(netip.MustParseAddr("10.77.0.1").AsSlice())})
	})
	with(t, w, Settings{VirtualInterfaces: []string{"vm0"}})
	_, proxy := open(t, vm, "", peerAddress+appPort, w.outbound)
	if got := originalDestination(t, proxy); got != peerAddress+appPort {
		t.Errorf("original destination %q", got)
	}
	from, to := netip.AddrPortFrom(netip.MustParseAddr("10.77.0.2"), 40000), netip.AddrPortFrom(netip.MustParseAddr(podAddress), 8080)
	sendACK(t, vm, from, to)
	if reaches(t, vm, from, to) {
		t.Error("a packet sent ahead opened a way past the proxy")
	}
	open(t, w.peer, "", podAddress+appPort, w.inbound)
}
