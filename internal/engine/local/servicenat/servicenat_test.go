package servicenat

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/services"
)

func svc(ip string, ports ...services.Port) services.Service {
	s := services.Service{Namespace: "default", Name: "s", Ports: ports}
	if ip != "" {
		s.ClusterIP = netip.MustParseAddr(ip)
	}
	return s
}

func port(p corev1.Protocol, n uint16, backends ...string) services.Port {
	out := services.Port{Protocol: p, Port: n}
	for _, b := range backends {
		out.Backends = append(out.Backends, netip.MustParseAddrPort(b))
	}
	return out
}

func TestPlanOf(t *testing.T) {
	p := PlanOf([]services.Service{
		svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080", "10.244.2.2:8080"), port(corev1.ProtocolUDP, 80, "10.244.1.2:53")),
		svc("", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080")),
		svc("10.96.0.3", port(corev1.ProtocolTCP, 80)),
		svc("10.96.0.4", port(corev1.ProtocolSCTP, 80, "10.244.1.2:8080")),
	})
	var got []string
	for _, port := range p.Ports {
		got = append(got, fmt.Sprintf("%s %d %s -> %v", port.Chain, port.Protocol, port.Addr, port.Backends))
	}
	want := "svc-10.96.0.2-17-80 17 10.96.0.2:80 -> [10.244.1.2:53]\nsvc-10.96.0.2-6-80 6 10.96.0.2:80 -> [10.244.1.2:8080 10.244.2.2:8080]"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if fmt.Sprint(p.Hairpins) != "[10.244.1.2 10.244.2.2]" {
		t.Errorf("hairpins %v", p.Hairpins)
	}
	if !p.Equal(p) || p.Equal(PlanOf(nil)) {
		t.Error("Equal is wrong")
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and needs root: run it with sudo")
	}
}

// newNetNS makes a namespace with loopback up that carries the backends' addresses.
func newNetNS(t *testing.T, addrs ...string) string {
	t.Helper()
	needRoot(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := netns.Create(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Remove(path); err != nil {
			t.Error(err)
		}
	})
	ip := func(args ...string) {
		if out, err := exec.Command("nsenter", append([]string{"--net=" + path, "ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("link", "set", "lo", "up")
	for _, a := range addrs {
		ip("addr", "add", a, "dev", "lo")
	}
	// A stand-in for the way out, so that an address of a service has a route to be sent by before it is translated.
	ip("link", "add", "out", "type", "veth", "peer", "name", "far")
	ip("link", "set", "out", "up")
	ip("link", "set", "far", "up")
	ip("addr", "add", "10.99.0.1/24", "dev", "out")
	ip("route", "add", "default", "via", "10.99.0.2", "dev", "out")
	return path
}

// listen answers every connection in the namespace with its name.
func listen(t *testing.T, ns, address, name string) {
	t.Helper()
	var l net.Listener
	err := netns.Do(ns, func() (err error) {
		l, err = net.Listen("tcp4", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s from %s", name, c.RemoteAddr().(*net.TCPAddr).IP)
			c.Close()
		}
	}()
}

func call(ns, address string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := netns.Dial(ctx, ns, "tcp", address, nil)
	if err != nil {
		return "", err
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	return string(b), err
}

var config = Config{ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), Resolver: netip.MustParseAddr("10.96.0.10")}

func TestServiceAddressReachesEveryBackendAndFollowsThePlan(t *testing.T) {
	ns := newNetNS(t, "10.244.1.2/32", "10.244.1.3/32")
	listen(t, ns, "10.244.1.2:8080", "a")
	listen(t, ns, "10.244.1.3:9090", "b")
	both := PlanOf([]services.Service{svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080", "10.244.1.3:9090"))})
	if err := Apply(ns, both, config); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range 64 {
		got, err := call(ns, "10.96.0.2:80")
		if err != nil {
			t.Fatal(err)
		}
		seen[got[:1]]++
	}
	if seen["a"] == 0 || seen["b"] == 0 || len(seen) != 2 {
		t.Errorf("64 connections went to %v", seen)
	}
	if err := Apply(ns, PlanOf([]services.Service{svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.3:9090"))}), config); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if got, err := call(ns, "10.96.0.2:80"); err != nil || got[:1] != "b" {
			t.Errorf("got %q, %v; want b alone", got, err)
		}
	}
}

func TestServiceWithoutBackendsRefusesAtOnce(t *testing.T) {
	ns := newNetNS(t)
	if err := Apply(ns, Plan{}, config); err != nil {
		t.Fatal(err)
	}
	if _, err := call(ns, "10.96.0.7:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want connection refused", err)
	}
}

func TestPodReachesItselfThroughItsService(t *testing.T) {
	node := newNetNS(t)
	pod := filepath.Join(t.TempDir(), "pod")
	if err := netns.Create(pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Remove(pod) })
	ip := func(ns string, args ...string) {
		if out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip(node, "link", "add", "p1", "type", "veth", "peer", "name", "eth0", "netns", pod)
	ip(node, "link", "set", "p1", "up")
	ip(node, "addr", "add", "10.244.1.1/32", "dev", "lo")
	ip(node, "route", "add", "10.244.1.2/32", "dev", "p1", "src", "10.244.1.1")
	ip(pod, "link", "set", "lo", "up")
	ip(pod, "link", "set", "eth0", "up")
	ip(pod, "addr", "add", "10.244.1.2/32", "dev", "eth0")
	ip(pod, "route", "add", "10.244.1.1/32", "dev", "eth0")
	ip(pod, "route", "add", "default", "via", "10.244.1.1")
	if err := exec.Command("nsenter", "--net="+node, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward").Run(); err != nil {
		t.Fatal(err)
	}
	listen(t, pod, "10.244.1.2:8080", "me")
	if err := Apply(node, PlanOf([]services.Service{svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080"))}), config); err != nil {
		t.Fatal(err)
	}
	if got, err := call(pod, "10.96.0.2:80"); err != nil || got != "me from 10.244.1.1" {
		t.Errorf("got %q, %v; want me from 10.244.1.1", got, err)
	}
}

func TestApplyLeavesOtherTablesAlone(t *testing.T) {
	ns := newNetNS(t)
	nft := func(args ...string) string {
		out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "nft"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	nft("add", "table", "ip", "theirs")
	nft("add", "chain", "ip", "theirs", "c")
	before := nft("list", "table", "ip", "theirs")
	plan := PlanOf([]services.Service{svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080"))})
	for range 3 {
		if err := Apply(ns, plan, config); err != nil {
			t.Fatal(err)
		}
	}
	once := nft("list", "ruleset")
	if err := Apply(ns, plan, config); err != nil {
		t.Fatal(err)
	}
	if got := nft("list", "table", "ip", "theirs"); got != before {
		t.Errorf("their table changed from\n%s\nto\n%s", before, got)
	}
	if got := nft("list", "ruleset"); strings.Count(got, "chain") != strings.Count(once, "chain") {
		t.Errorf("applying twice is not the same as once:\n%s\n%s", once, got)
	}
}

func TestThousandServicesFitInOneTransaction(t *testing.T) {
	ns := newNetNS(t)
	var all []services.Service
	for i := range 1000 {
		all = append(all, svc(fmt.Sprintf("10.96.%d.%d", 1+i/250, 1+i%250), port(corev1.ProtocolTCP, 80, "10.244.1.2:8080", "10.244.1.3:8080")))
	}
	if err := Apply(ns, PlanOf(all), config); err != nil {
		t.Fatal(err)
	}
}

// Both families of a service work beside each other, and a port with nothing behind it is refused in both.
func TestIPv6(t *testing.T) {
	ns := newNetNS(t, "10.244.1.2/32")
	for _, args := range [][]string{
		{"addr", "add", "fd00:10:244:1::2/128", "dev", "lo", "nodad"}, // there at once, also on a busy machine
		{"addr", "add", "fd00:99::1/64", "dev", "out", "nodad"},
		{"route", "add", "fd00:10:96::/112", "dev", "lo"},
	} {
		if out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "ip", "-6"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	listen(t, ns, "10.244.1.2:8080", "four")
	var l net.Listener
	if err := netns.Do(ns, func() (err error) {
		l, err = net.Listen("tcp6", "[fd00:10:244:1::2]:8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "six")
			c.Close()
		}
	}()
	six := svc("fd00:10:96::2", port(corev1.ProtocolTCP, 80, "[fd00:10:244:1::2]:8080"))
	config6 := Config{ServiceCIDR: netip.MustParsePrefix("fd00:10:96::/112"), Resolver: netip.MustParseAddr("fd00:10:96::a")}
	if err := Apply(ns, PlanOf([]services.Service{svc("10.96.0.2", port(corev1.ProtocolTCP, 80, "10.244.1.2:8080")), six}), config, config6); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{"10.96.0.2:80": "four", "[fd00:10:96::2]:80": "six"} {
		if got, err := call(ns, address); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, %v", address, got, err)
		}
	}
	for _, address := range []string{"10.96.0.2:81", "[fd00:10:96::2]:81"} {
		if got, err := call(ns, address); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %q, %v, want it refused", address, got, err)
		}
	}
}
