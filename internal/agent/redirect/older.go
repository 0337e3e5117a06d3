package redirect

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// A connection that is older than the rules is tracked from its next packet on. Until then the kernel may give a delivery of
// the proxy the port that the client has on that connection: no socket of the pod's own has it. The application's kernel takes
// the delivery for a packet of the older connection, and both answer each other with resets.

// Older is a connection that was opened before the pod was captured, mostly by a client to the pod. One that the pod opened has its
// ends the other way round: Client is the pod's.
type Older struct{ Client, Pod netip.AddrPort }

// Track makes connection tracking know older connections, so that the kernel gives a delivery with such a port another one.
// Connections that it knows already are left as they are.
func Track(ns *netns.Namespace, older []Older) error {
	if len(older) == 0 {
		return nil
	}
	return ns.Do(func() error {
		for _, o := range older {
			if err := o.track(); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("track the older connection from %s to %s: %w; the kernel needs NF_CT_NETLINK", o.Client, o.Pod, err)
			}
		}
		return nil
	})
}

// Untrack forgets older connections that ended before the rules could see them end. Connection tracking would know each for
// days, and what a client opens from the same port would pass for a part of it: it would be led nowhere, and dropped.
func Untrack(ns *netns.Namespace, ended []Older) error {
	if len(ended) == 0 {
		return nil
	}
	return ns.Do(func() error {
		for _, o := range ended {
			err := trackingRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, o.family(), nil, nil, tuple(nl.CTA_TUPLE_ORIG, o.Client, o.Pod))
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("forget the older connection from %s to %s: %w; the kernel needs NF_CT_NETLINK", o.Client, o.Pod, err)
			}
		}
		return nil
	})
}

// Untranslated lists the connections that the pod's connection tracking takes for open and that no rule translates, in either
// direction and at most mostForgotten. Some have ended where nothing saw it: the kernel tracks only while a pod has rules. What is opened
// anew between the same ends would pass for a part of such a connection, would not be redirected, and would be dropped.
func Untranslated(ns *netns.Namespace) (open []Older, err error) {
	err = ns.Do(func() error {
		return eachTracked(nil, func(_ []byte, t tracked) bool {
			if t.open() && t.mark&MarkMask != ReturnMark && t.status&(sourceTranslated|targetTranslated) == 0 && t.opened.Client.Addr().IsValid() && t.opened.Pod.Addr().IsValid() {
				open = append(open, t.opened)
			}
			return len(open) < mostForgotten
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list tracked connections: %w; the kernel needs NF_CT_NETLINK", err)
	}
	return open, nil
}

func (o Older) family() uint8 {
	if o.Client.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// The values that the kernel sets for a connection which it picks up in the middle.
const (
	bothHeard   = 1<<1 | 1<<2 | 1<<3 // IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED
	trackedOpen = 3                  // TCP_CONNTRACK_ESTABLISHED
	liberal     = 1 << 3             // IP_CT_TCP_FLAG_BE_LIBERAL: how windows are scaled is not known
	idleFor     = 5 * 24 * 60 * 60   // nf_conntrack_tcp_timeout_established, in seconds
)

func (o Older) track() error {
	flags := []byte{liberal, liberal} // the flags and their mask
	state := nested(nl.CTA_PROTOINFO, nested(nl.CTA_PROTOINFO_TCP,
		nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{trackedOpen}),
		nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, flags),
		nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, flags)))
	return trackingRequest(nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, o.family(), nil, nil,
		tuple(nl.CTA_TUPLE_ORIG, o.Client, o.Pod), tuple(nl.CTA_TUPLE_REPLY, o.Pod, o.Client),
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(bothHeard)), nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(idleFor)), state)
}

func tuple(kind int, from, to netip.AddrPort) *nl.RtAttr {
	source, destination := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if from.Addr().Is6() {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	return nested(kind,
		nested(nl.CTA_TUPLE_IP, nl.NewRtAttr(source, from.Addr().AsSlice()), nl.NewRtAttr(destination, to.Addr().AsSlice())),
		nested(nl.CTA_TUPLE_PROTO, nl.NewRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_TCP}),
			nl.NewRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(from.Port())), nl.NewRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(to.Port()))))
}

func nested(kind int, children ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	for _, child := range children {
		a.AddChild(child)
	}
	return a
}
