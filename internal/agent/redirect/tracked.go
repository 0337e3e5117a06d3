package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// While a chain of type nat exists, the kernel changes the address or port of a new connection whose answers could be taken for
// those of another tracked connection. A connection that the proxy delivers has the client's address and a port that the kernel
// chose, and it stays tracked for two minutes after its end. So a client that opens a plain connection to a pod that is being
// released may use the port of a delivery. The pod then sees another port, and the connection needs the translation for as long
// as it lives. Removing the last chain would cut it.

// Settle makes such connections rare and returns the number that still needs the rules. It forgets the proxy's deliveries that
// have ended. It counts the open connections that are not the proxy's and whose source the kernel translates.
func Settle(ns *netns.Namespace) (translated int, err error) {
	err = ns.Do(func() error {
		if err := forgetEndedDeliveries(); err != nil {
			return err
		}
		others, err := othersTranslate()
		if err != nil {
			return err
		}
		translated, err = countTranslated(others)
		return err
	})
	return translated, err
}

// othersTranslate says for which address families the kernel translates also without our rules. A chain of type nat without
// any rule does not make it.
func othersTranslate() (families map[uint8]bool, err error) {
	families = map[uint8]bool{}
	err = eachChain(func(of uint8, chain countedChain) bool {
		ours := nftables.TableFamily(of) == nftables.TableFamilyINet && chain.table == tableName
		if chain.kind != string(nftables.ChainTypeNAT) || ours || chain.rules == 0 {
			return true
		}
		for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
			if nftables.TableFamily(of) == family || nftables.TableFamily(of) == nftables.TableFamilyINet {
				families[uint8(family)] = true
			}
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w; the kernel needs nf_tables", err)
	}
	for list, family := range legacyTables {
		names, err := legacyTablesOf(list)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, "nat") {
			families[family] = true
		}
	}
	return families, nil
}

// mostForgotten bounds the memory that is used at once: how many connections a pod has had is the pod's choice.
const mostForgotten = 16384

func forgetEndedDeliveries() error {
	var ended [][]byte
	marked := []*nl.RtAttr{
		nl.NewRtAttr(nl.CTA_MARK, nl.BEUint32Attr(ReturnMark)),
		nl.NewRtAttr(ctaMarkMask, nl.BEUint32Attr(MarkMask)),
	}
	err := eachTracked(marked, func(message []byte, t tracked) bool {
		if t.mark&MarkMask == ReturnMark && t.ended() {
			ended = append(ended, append([]byte(nil), message...))
		}
		return len(ended) < mostForgotten
	})
	if err != nil {
		return fmt.Errorf("list the proxy's tracked connections: %w; the kernel needs NF_CT_NETLINK", err)
	}
	for _, message := range ended {
		// The listed message names the connection, its zone and its number. A kernel that ignores the filter lists others too.
		if err := trackingRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, message[0], message[nl.SizeofNfgenmsg:], nil); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("forget a connection of the proxy that has ended: %w; the kernel needs NF_CT_NETLINK", err)
		}
	}
	return nil
}

// countTranslated leaves out the families that others translate.
func countTranslated(others map[uint8]bool) (n int, err error) {
	filter := []*nl.RtAttr{
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(sourceTranslated)),
		nl.NewRtAttr(ctaStatusMask, nl.BEUint32Attr(sourceTranslated)),
	}
	err = eachTracked(filter, func(message []byte, t tracked) bool {
		if family := message[0]; !others[family] && t.status&sourceTranslated != 0 && t.mark&MarkMask != ReturnMark && t.open() {
			n++
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("list translated connections: %w; the kernel needs NF_CT_NETLINK", err)
	}
	return n, nil
}

// Constants of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h, which the library does not name.
const (
	ctaMarkMask      = 21
	ctaStatusMask    = 26
	sourceTranslated = 1 << 4 // IPS_SRC_NAT
	targetTranslated = 1 << 5 // IPS_DST_NAT
)

// tracked is what is read of a tracked TCP connection.
type tracked struct {
	status, mark uint32
	state        uint8 // enum tcp_conntrack, linux/netfilter/nf_conntrack_tcp.h; 0 if it is none of TCP
	opened       Older // from whom to whom its first packet went
}

const (
	trackedSynSent  = 1
	trackedLastAck  = 6
	trackedTimeWait = 7
	trackedClose    = 8
)

func (t tracked) open() bool  { return t.state >= trackedSynSent && t.state <= trackedLastAck }
func (t tracked) ended() bool { return t.state == trackedTimeWait || t.state == trackedClose }

// eachTracked lists the connections that the calling thread's network namespace tracks, until fn has enough. The filter
// only saves work: older kernels ignore what they do not know of it.
func eachTracked(filter []*nl.RtAttr, fn func(message []byte, t tracked) bool) error {
	return trackingRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, unix.AF_UNSPEC, nil, func(message []byte) bool {
		if len(message) < nl.SizeofNfgenmsg {
			return true
		}
		t, err := readTracked(message[nl.SizeofNfgenmsg:])
		return err != nil || fn(message, t)
	}, filter...)
}

func trackingRequest(operation, flags int, family uint8, raw []byte, fn func([]byte) bool, attributes ...*nl.RtAttr) error {
	r := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|operation, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, a := range attributes {
		r.AddData(a)
	}
	if raw != nil {
		r.AddRawData(raw)
	}
	if fn == nil {
		fn = func([]byte) bool { return true }
	}
	return r.ExecuteIter(unix.NETLINK_NETFILTER, 0, fn)
}

func readTracked(attributes []byte) (t tracked, err error) {
	err = eachAttribute(attributes, func(kind uint16, value []byte) error {
		switch kind {
		case nl.CTA_STATUS:
			t.status = number(value)
		case nl.CTA_MARK:
			t.mark = number(value)
		case nl.CTA_TUPLE_ORIG:
			t.opened, err = readTuple(value)
			return err
		case nl.CTA_PROTOINFO:
			return eachAttribute(value, func(kind uint16, value []byte) error {
				if kind != nl.CTA_PROTOINFO_TCP {
					return nil
				}
				return eachAttribute(value, func(kind uint16, value []byte) error {
					if kind == nl.CTA_PROTOINFO_TCP_STATE && len(value) > 0 {
						t.state = value[0]
					}
					return nil
				})
			})
		}
		return nil
	})
	return t, err
}

// readTuple reads the first direction of a tracked connection.
func readTuple(attributes []byte) (o Older, err error) {
	var client, pod netip.Addr
	var from, to uint16
	err = eachAttribute(attributes, func(kind uint16, value []byte) error {
		if kind != nl.CTA_TUPLE_IP && kind != nl.CTA_TUPLE_PROTO {
			return nil
		}
		return eachAttribute(value, func(part uint16, value []byte) error {
			switch {
			case kind == nl.CTA_TUPLE_IP && (part == nl.CTA_IP_V4_SRC || part == nl.CTA_IP_V6_SRC):
				client, _ = netip.AddrFromSlice(value)
			case kind == nl.CTA_TUPLE_IP && (part == nl.CTA_IP_V4_DST || part == nl.CTA_IP_V6_DST):
				pod, _ = netip.AddrFromSlice(value)
			case kind == nl.CTA_TUPLE_PROTO && part == nl.CTA_PROTO_SRC_PORT:
				from = number16(value)
			case kind == nl.CTA_TUPLE_PROTO && part == nl.CTA_PROTO_DST_PORT:
				to = number16(value)
			}
			return nil
		})
	})
	return Older{Client: netip.AddrPortFrom(client, from), Pod: netip.AddrPortFrom(pod, to)}, err
}

func number16(value []byte) uint16 {
	if len(value) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(value)
}

func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

func eachAttribute(b []byte, fn func(kind uint16, value []byte) error) error {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for _, a := range list {
		if err := fn(a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), a.Value); err != nil {
			return err
		}
	}
	return nil
}
