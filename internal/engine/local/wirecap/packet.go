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
	etherIPv6  = 0x86dd
	ipProtoTCP = 6

	flagSYN = 0x02
	flagACK = 0x10
)

// parse reads an Ethernet frame. ok is false if it is not a whole TCP segment over IPv4 or IPv6; fragments are none.
func parse(frame []byte) (s segment, ok bool) {
	if len(frame) < ethHeader {
		return segment{}, false
	}
	var src, dst netip.Addr
	var tcp []byte
	switch ip := frame[ethHeader:]; binary.BigEndian.Uint16(frame[12:]) {
	case etherIPv4:
		src, dst, tcp, ok = parseIPv4(ip)
	case etherIPv6:
		src, dst, tcp, ok = parseIPv6(ip)
	}
	if !ok || len(tcp) < 20 {
		return segment{}, false
	}
	offset := int(tcp[12]>>4) * 4
	if offset < 20 || offset > len(tcp) {
		return segment{}, false
	}
	return segment{
		src: netip.AddrPortFrom(src, binary.BigEndian.Uint16(tcp)), dst: netip.AddrPortFrom(dst, binary.BigEndian.Uint16(tcp[2:])),
		seq: binary.BigEndian.Uint32(tcp[4:]), syn: tcp[13]&flagSYN != 0, ack: tcp[13]&flagACK != 0, payload: tcp[offset:],
	}, true
}

func parseIPv4(ip []byte) (src, dst netip.Addr, tcp []byte, ok bool) {
	if len(ip) < 20 || ip[0]>>4 != 4 || ip[9] != ipProtoTCP {
		return src, dst, nil, false
	}
	header, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if total == 0 {
		total = len(ip) // a segment that the sender's network card was to cut up, and over 64 KiB
	}
	if fragment := binary.BigEndian.Uint16(ip[6:]) & 0x3fff; header < 20 || total < header || total > len(ip) || fragment != 0 {
		return src, dst, nil, false
	}
	src, _ = netip.AddrFromSlice(ip[12:16])
	dst, _ = netip.AddrFromSlice(ip[16:20])
	return src, dst, ip[header:total], true
}

// parseIPv6 reads a packet without extension headers but for the jumbo one: TCP here comes with no other, and a fragment
// has one of its own.
func parseIPv6(ip []byte) (src, dst netip.Addr, tcp []byte, ok bool) {
	const header, hopByHop = 40, 0
	if len(ip) < header || ip[0]>>4 != 6 {
		return src, dst, nil, false
	}
	next, from, total := ip[6], header, header+int(binary.BigEndian.Uint16(ip[4:]))
	if total == header {
		total = len(ip) // a segment over 64 KiB, as in IPv4
	}
	if next == hopByHop {
		if len(ip) < header+8 {
			return src, dst, nil, false
		}
		next, from = ip[header], header+8+8*int(ip[header+1])
	}
	if next != ipProtoTCP || total > len(ip) || from > total {
		return src, dst, nil, false
	}
	src, _ = netip.AddrFromSlice(ip[8:24])
	dst, _ = netip.AddrFromSlice(ip[24:40])
	return src, dst, ip[from:total], true
}
