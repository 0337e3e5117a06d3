package diag

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The layout of struct inet_diag_req_v2 and struct inet_diag_msg (linux/inet_diag.h): ports and addresses are in
// network order, everything else in the machine's.
const (
	requestLength = 56
	messageLength = 72
	attributeMark = 15 // INET_DIAG_MARK
)

// request asks for all TCP sockets of a family in the listed states.
func request(family uint8) []byte {
	b := make([]byte, requestLength)
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], listedStates)
	// No cookie: any socket.
	binary.NativeEndian.PutUint32(b[48:], ^uint32(0))
	binary.NativeEndian.PutUint32(b[52:], ^uint32(0))
	return b
}

var errShort = errors.New("the kernel's answer is shorter than a socket's description")

// parse reads one socket's description.
func parse(b []byte) (Socket, error) {
	if len(b) < messageLength {
		return Socket{}, errShort
	}
	address := func(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)).Unmap() }
	switch b[0] {
	case unix.AF_INET:
		address = func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	case unix.AF_INET6:
	default:
		return Socket{}, errors.New("the kernel's answer describes no IP socket")
	}
	s := Socket{
		State:  State(b[1]),
		Local:  netip.AddrPortFrom(address(b[8:]), binary.BigEndian.Uint16(b[4:])),
		Remote: netip.AddrPortFrom(address(b[24:]), binary.BigEndian.Uint16(b[6:])),
		Cookie: uint64(binary.NativeEndian.Uint32(b[44:])) | uint64(binary.NativeEndian.Uint32(b[48:]))<<32,
	}
	attributes, err := netlink.NewAttributeDecoder(b[messageLength:])
	if err != nil {
		return Socket{}, err
	}
	for attributes.Next() {
		if attributes.Type() == attributeMark {
			s.Mark = attributes.Uint32()
		}
	}
	return s, attributes.Err()
}
