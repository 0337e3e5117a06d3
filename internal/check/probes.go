package check

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The probes below run in a fresh network namespace on a locked thread; whatever they leave dies with it. They use
// what the mesh uses: the same rule expressions, socket options and addresses.

const (
	probeMark     = 0x539
	probeMarkMask = 0xfff
	probeTable    = 100
	probePriority = 32764
	dialTimeout   = 2 * time.Second
)

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return step("find the loopback device", err)
	}
	return step("bring the loopback device up", netlink.LinkSetUp(lo))
}

func probeLinks() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"}); err != nil {
		return step("make a veth pair", err)
	}
	attrs = netlink.NewLinkAttrs()
	attrs.Name = "probebr"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return step("make a bridge", err)
	}
	port, err := netlink.LinkByName("probe0")
	if err != nil {
		return step("find the veth device", err)
	}
	bridge, err := netlink.LinkByName("probebr")
	if err != nil {
		return step("find the bridge", err)
	}
	return step("put the veth device on the bridge", netlink.LinkSetMaster(port, bridge))
}

// probeRedirect sends a connection for one port to another with the rule that captures a pod's traffic, and asks the
// accepted socket for the original destination, on which the node proxy routes.
func probeRedirect() error {
	const dialled = 18
	if err := loopbackUp(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return step("listen", err)
	}
	defer func() { _ = listener.Close() }()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	err = addNATRule(
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Redir{RegisterProtoMin: 1},
	)
	if err != nil {
		return step("add a redirect rule", err)
	}
	accepted, err := connectThrough(listener, fmt.Sprintf("127.0.0.1:%d", dialled))
	if err != nil {
		return fmt.Errorf("a redirect rule has no effect: %w", err)
	}
	defer func() { _ = accepted.Close() }()
	return originalPort(accepted, dialled)
}

func originalPort(conn *net.TCPConn, want uint16) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return step("reach the socket", err)
	}
	var got uint16
	var failed error
	if err := raw.Control(func(fd uintptr) {
		// The address comes back as a sockaddr_in; the request structure of this size is a convenient buffer for it.
		var original *unix.IPv6Mreq
		original, failed = unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, unix.SO_ORIGINAL_DST)
		if failed == nil {
			got = binaryutil.BigEndian.Uint16(original.Multiaddr[2:4])
		}
	}); err != nil {
		return step("reach the socket", err)
	}
	if failed != nil {
		return step("read the original destination of a redirected connection", failed)
	}
	if got != want {
		return fmt.Errorf("a redirected connection reports port %d as its original destination, not %d", got, want)
	}
	return nil
}

// probeServiceNAT picks an endpoint from a map by a random number, as the rules for cluster addresses do.
func probeServiceNAT() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return step("listen", err)
	}
	defer func() { _ = listener.Close() }()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	conn, err := nftables.New()
	if err != nil {
		return step("reach nftables", err)
	}
	table, chain := natChain(conn)
	endpoints := &nftables.Set{
		Table: table, Name: "endpoints", IsMap: true,
		KeyType: nftables.TypeInteger, DataType: nftables.TypeIPAddr,
	}
	err = conn.AddSet(endpoints, []nftables.SetElement{
		{Key: binaryutil.NativeEndian.PutUint32(0), Val: net.IPv4(127, 0, 0, 1).To4()},
		{Key: binaryutil.NativeEndian.PutUint32(1), Val: net.IPv4(127, 0, 0, 1).To4()},
	})
	if err != nil {
		return step("make a map of endpoints", err)
	}
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Numgen{Register: 1, Modulus: 2, Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: 1, DestRegister: 1, SetName: endpoints.Name, SetID: endpoints.ID, IsDestRegSet: true},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}})
	postrouting := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	// The mark keeps the probe's own connection out: on the loopback device there is no address to masquerade with.
	conn.AddRule(&nftables.Rule{Table: table, Chain: postrouting, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(probeMark)},
		&expr.Masq{},
	}})
	if err := conn.Flush(); err != nil {
		return step("add destination NAT by a map", err)
	}
	accepted, err := connectThrough(listener, "127.0.0.2:18")
	if err != nil {
		return fmt.Errorf("destination NAT by a map has no effect: %w", err)
	}
	return accepted.Close()
}

func natChain(conn *nftables.Conn) (*nftables.Table, *nftables.Chain) {
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "lateen_probe"})
	return table, conn.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
}

func addNATRule(exprs ...expr.Any) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table, chain := natChain(conn)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	return conn.Flush()
}

// connectThrough dials address and returns the connection that arrived at the listener. The dial happens on this
// thread: a dialer of package net would do the same, but may hand over to another thread, outside this namespace.
func connectThrough(listener net.Listener, address string) (*net.TCPConn, error) {
	target, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, step("make a socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Without SYN retransmission a dropped packet would block for minutes.
	timeout := unix.NsecToTimeval(dialTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return nil, step("limit the time to connect", err)
	}
	to := &unix.SockaddrInet4{Port: target.Port, Addr: [4]byte(target.IP.To4())}
	if err := unix.Connect(fd, to); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	if err := listener.(*net.TCPListener).SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	accepted, err := listener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("a connection to %s arrived elsewhere", address)
	}
	if err != nil {
		return nil, err
	}
	return accepted.(*net.TCPConn), nil
}

// probeTransparent binds a marked socket to an address that is not this machine's, as the node proxy does to keep a
// client's address towards its pod.
func probeTransparent() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return step("make a socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, probeMark); err != nil {
		return step("mark a socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
		return step("make a socket transparent", err)
	}
	foreign := &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}} // RFC 5737: nobody's address
	return step("bind a transparent socket to a foreign address", unix.Bind(fd, foreign))
}

func probePolicyRouting() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	rule := netlink.NewRule()
	mask := uint32(probeMarkMask)
	rule.Mark, rule.Mask, rule.Table, rule.Priority = probeMark, &mask, probeTable, probePriority
	rule.Family = unix.AF_INET
	if err := netlink.RuleAdd(rule); err != nil {
		return step("add a routing rule by mark", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return step("find the loopback device", err)
	}
	return step("add a local route to a table of its own", netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: probeTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST,
		Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	}))
}

// probeSocketDiagnosis lists TCP sockets as the agent does to find connections that are older than their pod's enrolment.
func probeSocketDiagnosis() error {
	_, err := netlink.SocketDiagTCP(unix.AF_INET)
	return step("list TCP sockets", err)
}

func probeCapture() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return step("make a packet socket", err)
	}
	return step("close a packet socket", unix.Close(fd))
}
