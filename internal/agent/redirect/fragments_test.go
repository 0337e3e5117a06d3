package redirect

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// A packet that opens a connection is whole before the rules look at it, however it was cut.
func TestAnOpeningPacketInPiecesGoesToTheProxy(t *testing.T) {
	for name, mode := range map[string]Mode{"plain": Absent, "captured": Capturing} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.app.Close()
			if mode != Absent {
				apply(t, w.pod, mode)
			}
			// Nothing listens at the port that is dialled. So an answer other than a reset is the proxy's.
			answer := inPieces(t, w.peer, netip.MustParseAddr(peerAddress), netip.MustParseAddr(podAddress), 8080)
			const syn, rst, ack = 0x02, 0x04, 0x10
			want := byte(rst | ack)
			if mode == Capturing {
				want = syn | ack
			}
			if answer != want {
				t.Errorf("answered with flags %#x, want %#x", answer, want)
			}
		})
	}
}

// inPieces sends an opening packet in two fragments, of which the first has no more than the ports, and returns the flags of the answer.
func inPieces(t *testing.T, ns *netns.Namespace, from, to netip.Addr, port uint16) (flags byte) {
	t.Helper()
	const own, header, tcpHeader, syn = 40777, 20, 20, 0x02
	segment := make([]byte, tcpHeader)
	segment[0], segment[1], segment[2], segment[3] = own>>8, own&0xff, byte(port>>8), byte(port)
	segment[7], segment[12], segment[13], segment[14] = 1, tcpHeader/4<<4, syn, 4
	sum := uint32(0)
	pseudo := append(append(from.AsSlice(), to.AsSlice()...), 0, unix.IPPROTO_TCP, 0, tcpHeader)
	for _, b := range [][]byte{pseudo, segment} {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	segment[16], segment[17] = byte(^sum>>8), byte(^sum)
	piece := func(offset int, more bool, payload []byte) []byte {
		p := make([]byte, header, header+len(payload))
		p[0], p[3], p[4], p[5], p[8], p[9] = 0x45, byte(header+len(payload)), 0x12, 0x34, 64, unix.IPPROTO_TCP
		p[6], p[7] = byte(offset/8>>8), byte(offset/8)
		if more {
			p[6] |= 0x20
		}
		copy(p[12:], from.AsSlice())
		copy(p[16:], to.AsSlice())
		return append(p, payload...)
	}
	err := ns.Do(func() error {
		listen, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(listen)
		send, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(send)
		if err := unix.SetsockoptTimeval(listen, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			return err
		}
		for _, p := range [][]byte{piece(0, true, segment[:8]), piece(8, false, segment[8:])} {
			if err := unix.Sendto(send, p, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
				return err
			}
		}
		for {
			b := make([]byte, 128)
			n, _, err := unix.Recvfrom(listen, b, 0)
			if err != nil {
				return fmt.Errorf("no answer: %w", err)
			}
			if n >= header+tcpHeader && int(b[header+2])<<8|int(b[header+3]) == own {
				flags = b[header+13]
				return nil
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return flags
}
