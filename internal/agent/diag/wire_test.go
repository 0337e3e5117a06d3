package diag

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"
	"testing/quick"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// write is parse's opposite.
func write(s Socket, v6 bool) []byte {
	b := make([]byte, messageLength)
	local, remote := s.Local.Addr().AsSlice(), s.Remote.Addr().AsSlice()
	b[0] = unix.AF_INET
	if v6 {
		b[0] = unix.AF_INET6
		l, r := s.Local.Addr().As16(), s.Remote.Addr().As16()
		local, remote = l[:], r[:]
	}
	b[1] = byte(s.State)
	binary.BigEndian.PutUint16(b[4:], s.Local.Port())
	binary.BigEndian.PutUint16(b[6:], s.Remote.Port())
	copy(b[8:], local)
	copy(b[24:], remote)
	binary.NativeEndian.PutUint32(b[44:], uint32(s.Cookie))
	binary.NativeEndian.PutUint32(b[48:], uint32(s.Cookie>>32))
	attributes := netlink.NewAttributeEncoder()
	attributes.Bytes(8, []byte{0}) // INET_DIAG_SHUTDOWN stands before the mark
	attributes.Uint32(attributeMark, s.Mark)
	a, err := attributes.Encode()
	if err != nil {
		panic(err)
	}
	return append(b, a...)
}

func TestReadsWhatWasWritten(t *testing.T) {
	roundTrip := func(local, remote [4]byte, lport, rport uint16, state uint8, mark uint32, cookie uint64, v6 bool) bool {
		want := Socket{
			Local:  netip.AddrPortFrom(netip.AddrFrom4(local), lport),
			Remote: netip.AddrPortFrom(netip.AddrFrom4(remote), rport),
			State:  State(state), Mark: mark, Cookie: cookie,
		}
		got, err := parse(write(want, v6))
		return err == nil && reflect.DeepEqual(got, want)
	}
	if err := quick.Check(roundTrip, nil); err != nil {
		t.Error(err)
	}
}

func TestReadsIPv6(t *testing.T) {
	want := Socket{Local: netip.MustParseAddrPort("[fd00::1]:1"), Remote: netip.MustParseAddrPort("[fd00::2]:2"), State: Established}
	got, err := parse(write(want, true))
	if err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	whole := write(Socket{Local: netip.MustParseAddrPort("10.0.0.1:1"), Remote: netip.MustParseAddrPort("10.0.0.2:2"), Mark: 0x539}, false)
	f.Add(whole)
	f.Add(whole[:messageLength])
	f.Add(whole[:messageLength-1])
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parse(b)
		if err != nil {
			return
		}
		if again, err := parse(write(s, b[0] == unix.AF_INET6)); err != nil || again != s {
			t.Errorf("%v became %v, %v", s, again, err)
		}
	})
}
