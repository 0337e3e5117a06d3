package diag

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func socket(local, remote string, state State, mark uint32) Socket {
	return Socket{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote), State: state, Mark: mark}
}

func TestTellsMeshedConnectionsFromOthers(t *testing.T) {
	const proxy = 0x539
	listeners := []Socket{
		socket("0.0.0.0:8080", "0.0.0.0:0", Listen, 0),
		socket("0.0.0.0:15001", "0.0.0.0:0", Listen, proxy),
		socket("0.0.0.0:15006", "0.0.0.0:0", Listen, proxy),
		socket("0.0.0.0:15008", "0.0.0.0:0", Listen, proxy),
	}
	type unmeshed struct {
		Remote    string
		Direction Direction
	}
	tests := []struct {
		name     string
		sockets  []Socket
		unmeshed []unmeshed
		carried  int
	}{
		{name: "a pod at rest"},
		{
			name:     "outbound, opened before",
			sockets:  []Socket{socket("10.0.0.1:40000", "10.0.0.2:80", Established, 0)},
			unmeshed: []unmeshed{{"10.0.0.2:80", Outbound}},
		},
		{
			name:     "inbound, opened before",
			sockets:  []Socket{socket("10.0.0.1:8080", "10.0.0.2:40000", Established, 0)},
			unmeshed: []unmeshed{{"10.0.0.2:40000", Inbound}},
		},
		{
			name: "outbound through the proxy",
			sockets: []Socket{
				socket("10.0.0.1:40000", "10.96.0.1:80", Established, 0),
				socket("127.0.0.1:15001", "10.0.0.1:40000", Established, proxy),
				socket("10.0.0.1:40001", "10.0.0.2:15008", Established, proxy),
			},
			carried: 1,
		},
		{
			name: "inbound through the tunnel, delivered from the client's address",
			sockets: []Socket{
				socket("10.0.0.1:15008", "10.0.0.2:40001", Established, proxy),
				socket("10.0.0.2:40000", "10.0.0.1:8080", Established, proxy),
				socket("10.0.0.1:8080", "10.0.0.2:40000", Established, 0),
			},
			carried: 1,
		},
		{
			name: "inbound plaintext through the proxy, delivered from the pod's address",
			sockets: []Socket{
				socket("10.0.0.1:15006", "10.0.0.2:40000", Established, proxy),
				socket("10.0.0.1:41000", "10.0.0.1:8080", Established, proxy),
				socket("10.0.0.1:8080", "10.0.0.1:41000", Established, 0),
			},
			carried: 2,
		},
		{
			name: "to the same server, one through the proxy and one before it",
			sockets: []Socket{
				socket("10.0.0.2:40000", "10.0.0.1:8080", Established, proxy),
				socket("10.0.0.1:8080", "10.0.0.2:40000", Established, 0),
				socket("10.0.0.1:8080", "10.0.0.2:39000", Established, 0),
			},
			unmeshed: []unmeshed{{"10.0.0.2:39000", Inbound}},
			carried:  1,
		},
		{
			name: "a proxy that marks only what it dials",
			sockets: []Socket{
				socket("10.0.0.1:40000", "10.96.0.1:80", Established, 0),
				socket("127.0.0.1:15001", "10.0.0.1:40000", Established, 0),
			},
			carried: 1,
		},
		{
			name: "idle tunnels carry nothing",
			sockets: []Socket{
				socket("10.0.0.1:15008", "10.0.0.2:40001", Established, proxy),
				socket("10.0.0.1:40001", "10.0.0.2:15008", Established, proxy),
			},
		},
		{
			name: "a tunnel from the pod to itself carries nothing by itself",
			sockets: []Socket{
				socket("10.0.0.1:15008", "10.0.0.1:40001", Established, proxy),
				socket("10.0.0.1:40001", "10.0.0.1:15008", Established, proxy),
			},
		},
		{
			name: "calls to itself and health checks are meant to be plain",
			sockets: []Socket{
				socket("10.0.0.1:40000", "10.0.0.1:8080", Established, 0),
				socket("10.0.0.1:8080", "10.0.0.1:40000", Established, 0),
				socket("127.0.0.1:40000", "127.0.0.1:8080", Established, 0),
				socket("10.0.0.1:8080", "169.254.7.127:40000", Established, 0),
				socket("[fd00::1]:8080", "[fd16:9254:7127:1337:ffff:ffff:ffff:ffff]:40000", Established, 0),
			},
		},
		{
			name: "half-closed connections still transport, ending ones do not",
			sockets: []Socket{
				socket("10.0.0.1:40000", "10.0.0.2:80", FinWait2, 0),
				socket("10.0.0.1:40001", "10.0.0.2:81", CloseWait, 0),
				socket("10.0.0.1:40002", "10.0.0.2:82", LastAck, 0),
				socket("10.0.0.1:40003", "10.0.0.2:83", SynSent, 0),
				socket("10.0.0.1:40004", "10.0.0.2:84", Closing, 0),
			},
			unmeshed: []unmeshed{{"10.0.0.2:80", Outbound}, {"10.0.0.2:81", Outbound}},
		},
	}
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := Listing{Sockets: append(append([]Socket{}, listeners...), tt.sockets...), Own: own}
			var got []unmeshed
			for _, c := range l.Unmeshed() {
				got = append(got, unmeshed{c.Remote.String(), c.Direction})
			}
			if diff := cmp.Diff(tt.unmeshed, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unmeshed connections:\n%s", diff)
			}
			if got := l.Carried(); got != tt.carried {
				t.Errorf("%d connections carried, want %d", got, tt.carried)
			}
		})
	}
}
