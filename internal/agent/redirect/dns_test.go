package redirect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

const resolver = peerAddress + ":53"

// datagrams opens a UDP socket in a namespace, with a mark unless it is 0.
func datagrams(t *testing.T, ns *netns.Namespace, address string, mark int) net.PacketConn {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			if mark != 0 {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
			}
		}), err)
	}}
	var c net.PacketConn
	if err := ns.Do(func() (err error) {
		c, err = config.ListenPacket(context.Background(), "udp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo answers every datagram with a name in front of it.
func echo(c net.PacketConn, name string) {
	buffer := make([]byte, 512)
	for {
		n, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(append([]byte(name+" "), buffer[:n]...), from)
	}
}

// question sends a datagram and returns the answer and who it came from.
func question(t *testing.T, c net.PacketConn, to string) (answer, from string) {
	t.Helper()
	if _, err := c.WriteTo([]byte("who"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	buffer := make([]byte, 512)
	n, peer, err := c.ReadFrom(buffer)
	if err != nil {
		t.Fatalf("ask %s: %v", to, err)
	}
	return string(buffer[:n]), peer.String()
}

// dnsWorld is a world with a resolver beside the pod, and a proxy that answers for it.
func dnsWorld(t *testing.T) *world {
	w := newWorld(t)
	go echo(datagrams(t, w.pod, "127.0.0.1:15053", ProxyMark), "proxy")
	go echo(datagrams(t, w.peer, resolver, 0), "resolver")
	return w
}

func TestQuestionsGoToTheProxyAndAnswersComeFromTheResolver(t *testing.T) {
	w := dnsWorld(t)
	app := datagrams(t, w.pod, podAddress+":0", 0)
	if answer, _ := question(t, app, resolver); answer != "resolver who" {
		t.Fatalf("before the capture: %q", answer)
	}
	apply(t, w.pod, Capturing)
	app = datagrams(t, w.pod, podAddress+":0", 0)
	for range 3 { // the same flow again, as resolvers of programs use it for both address families
		answer, from := question(t, app, resolver)
		if answer != "proxy who" || from != resolver {
			t.Fatalf("%q from %s", answer, from)
		}
	}
	apply(t, w.pod, Draining)
	if answer, _ := question(t, datagrams(t, w.pod, podAddress+":0", 0), resolver); answer != "resolver who" {
		t.Errorf("after the capture: %q", answer)
	}
}

func TestOtherDatagramsAreLeftAlone(t *testing.T) {
	w := dnsWorld(t)
	apply(t, w.pod, Capturing)
	go echo(datagrams(t, w.peer, peerAddress+":5353", 0), "other")
	if answer, _ := question(t, datagrams(t, w.pod, podAddress+":0", 0), peerAddress+":5353"); answer != "other who" {
		t.Errorf("%q", answer)
	}
	go echo(datagrams(t, w.pod, "127.0.0.1:53", 0), "own")
	if answer, _ := question(t, datagrams(t, w.pod, "127.0.0.1:0", 0), "127.0.0.1:53"); answer != "own who" {
		t.Errorf("a resolver in the pod: %q", answer)
	}
}

// The proxy may be given the very port that a program of the pod has just asked the same resolver from.
func TestTheProxysQuestionsReachTheResolverFromAnyPort(t *testing.T) {
	w := dnsWorld(t)
	apply(t, w.pod, Capturing)
	app := datagrams(t, w.pod, podAddress+":40053", 0)
	if answer, _ := question(t, app, resolver); answer != "proxy who" {
		t.Fatalf("%q", answer)
	}
	app.Close()
	proxy := datagrams(t, w.pod, podAddress+":40053", ProxyMark)
	if answer, _ := question(t, proxy, resolver); answer != "resolver who" {
		t.Errorf("%q", answer)
	}
	// And the other way round.
	proxy.Close()
	if answer, _ := question(t, datagrams(t, w.pod, podAddress+":40053", 0), resolver); answer != "proxy who" {
		t.Errorf("%q", answer)
	}
}

func TestQuestionsOverTCPGoToTheProxy(t *testing.T) {
	w := dnsWorld(t)
	apply(t, w.pod, Capturing)
	var l net.Listener
	if err := w.pod.Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:15053"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, server := open(t, w.pod, "", resolver, l)
	if got := originalDestination(t, server); got != resolver {
		t.Errorf("original destination %q", got)
	}
}

func TestQuestionsThatAreNotCaptured(t *testing.T) {
	for name, s := range map[string]Settings{
		"off":      {BypassDNS: true},
		"by port":  {OutboundPorts: []uint16{53}},
		"by range": {OutboundRanges: []netip.Prefix{netip.MustParsePrefix(peerAddress + "/32")}},
	} {
		t.Run(name, func(t *testing.T) {
			w := dnsWorld(t)
			if _, err := Apply(w.pod, Capturing, s); err != nil {
				t.Fatal(err)
			}
			if answer, _ := question(t, datagrams(t, w.pod, podAddress+":0", 0), resolver); answer != "resolver who" {
				t.Errorf("%q", answer)
			}
		})
	}
}

// Without a proxy a question fails; it does not go out in clear.
func TestWithoutAProxyNobodyIsAsked(t *testing.T) {
	w := newWorld(t)
	go echo(datagrams(t, w.peer, resolver, 0), "resolver")
	apply(t, w.pod, Capturing)
	app := datagrams(t, w.pod, podAddress+":0", 0)
	if _, err := app.WriteTo([]byte("who"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(resolver))); err != nil {
		t.Fatal(err)
	}
	_ = app.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	buffer := make([]byte, 512)
	if n, from, err := app.ReadFrom(buffer); err == nil {
		t.Errorf("%s answered %q", from, buffer[:n])
	} else if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

func TestDNSIsNamedAmongTheExceptions(t *testing.T) {
	if got := (Settings{BypassDNS: true}).Exceptions(); !slices.Contains(got, "DNS") {
		t.Error(strings.Join(got, "; "))
	}
	if (Settings{BypassDNS: true}).Equal(Settings{}) {
		t.Error("a change of it is none")
	}
}
