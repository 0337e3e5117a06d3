// Package wirecap records packets on the links between nodes and judges, from the bytes alone, what each TCP connection
// carried. It has no opinion on what should have been carried.
package wirecap

import (
	"encoding/binary"
	"net/netip"
)

// segment is one TCP segment.
type segment struct {
	src, dst netip.AddrPort
	seq      uint32
	syn      bool
	ack      bool
	payload  []byte
}

const (
	ethHeader  = 14
	etherIPv4  = 0x0800
	ipProtoTCP = 6

	flagSYN = 0x02
	flagACK = 0x10
)

// parse reads an Ethernet frame. ok is false if it is not a whole IPv4 TCP segment; fragments are none.
func parse(frame []byte) (s segment, ok bool) {
	if len(frame) < ethHeader || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
		return segment{}, false
	}
	ip := frame[ethHeader:]
	if len(ip) < 20 || ip[0]>>4 != 4 || ip[9] != ipProtoTCP {
		return segment{}, false
	}
	header, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if total == 0 {
		total = len(ip) // a segment that the sender's network card was to cut up, and over 64 KiB
	}
	if fragment := binary.BigEndian.Uint16(ip[6:]) & 0x3fff; header < 20 || total < header || total > len(ip) || fragment != 0 {
		return segment{}, false
	}
	tcp := ip[header:total]
	if len(tcp) < 20 {
		return segment{}, false
	}
	offset := int(tcp[12]>>4) * 4
	if offset < 20 || offset > len(tcp) {
		return segment{}, false
	}
	src, _ := netip.AddrFromSlice(ip[12:16])
	dst, _ := netip.AddrFromSlice(ip[16:20])
	return segment{
		src: netip.AddrPortFrom(src, binary.BigEndian.Uint16(tcp)), dst: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(tcp[2:])),
		seq: binary.BigEndian.Uint32(tcp[4:]), syn: tcp[13]&flagSYN != 0, ack: tcp[13]&flagACK != 0, payload: tcp[offset:],
	}, true
}
