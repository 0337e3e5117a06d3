package redirect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The proxy delivers to the pod from the client's own address. The port is the kernel's choice, and it may choose the
// very port of a connection of the same client that was redirected: to connection tracking both would be one connection
// from the client to the pod, and the second would be redirected like the first, into the proxy. A zone of its own for
// what the proxy opens inside the pod tells the two apart. Only the direction from the proxy is in the zone: the pod's
// answers carry nothing to know them by, and they differ from those of a redirected connection anyway.
//
// The rule stands in a table of its own, which is written here by hand: the library cannot say the direction of a zone.
const (
	zoneTable = "lateen-zone"
	zoneChain = "deliver"
	// DeliveryZone is the zone of connections that the proxy opens inside the pod.
	DeliveryZone = 0x539
)

// zoneRule is: oifname "lo" meta l4proto tcp meta mark & MarkMask == ProxyMark ct original zone set DeliveryZone.
func zoneRule() ([]byte, error) {
	known := rule(leavesBy("lo"), tcp(), markIs(expr.CmpOpEq, ProxyMark), []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint16(DeliveryZone)},
	})
	var list []netlink.Attribute
	for _, e := range known {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: b})
	}
	const original = 0 // IP_CT_DIR_ORIGINAL, linux/netfilter/nf_conntrack_tuple_common.h
	set, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_CT_KEY, Data: binary.BigEndian.AppendUint32(nil, unix.NFT_CT_ZONE)},
		{Type: unix.NFTA_CT_DIRECTION, Data: []byte{original}},
		{Type: unix.NFTA_CT_SREG, Data: binary.BigEndian.AppendUint32(nil, unix.NFT_REG_1)},
	})
	if err != nil {
		return nil, err
	}
	ct, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_EXPR_NAME, Data: []byte("ct\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_EXPR_DATA, Data: set},
	})
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes(append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: ct}))
}

// addZone makes the table be what it should, in one transaction, and leaves one that already is alone.
func addZone() (changed bool, err error) {
	want, err := zoneRule()
	if err != nil {
		return false, err
	}
	same, err := zoneIs(want)
	if err != nil || same {
		return false, err
	}
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, fmt.Errorf("open nftables: %w; the kernel needs nf_tables", err)
	}
	defer c.Close()
	name := func(t uint16, text string) netlink.Attribute {
		return netlink.Attribute{Type: t, Data: append([]byte(text), 0)}
	}
	hook, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_HOOK_HOOKNUM, Data: binary.BigEndian.AppendUint32(nil, unix.NF_INET_LOCAL_OUT)},
		{Type: unix.NFTA_HOOK_PRIORITY, Data: binary.BigEndian.AppendUint32(nil, uint32(*nftables.ChainPriorityRaw))},
	})
	if err != nil {
		return false, err
	}
	table := []netlink.Attribute{name(unix.NFTA_TABLE_NAME, zoneTable)}
	var batch []netlink.Message
	for _, part := range []struct {
		kind  int
		flags netlink.HeaderFlags
		attrs []netlink.Attribute
	}{
		// Adding before deleting makes the deletion succeed whether or not the table is there.
		{unix.NFT_MSG_NEWTABLE, netlink.Create, table},
		{unix.NFT_MSG_DELTABLE, 0, table},
		{unix.NFT_MSG_NEWTABLE, netlink.Create, table},
		{unix.NFT_MSG_NEWCHAIN, netlink.Create, []netlink.Attribute{
			name(unix.NFTA_CHAIN_TABLE, zoneTable), name(unix.NFTA_CHAIN_NAME, zoneChain), name(unix.NFTA_CHAIN_TYPE, "filter"),
			{Type: unix.NLA_F_NESTED | unix.NFTA_CHAIN_HOOK, Data: hook},
		}},
		{unix.NFT_MSG_NEWRULE, netlink.Create | netlink.Append, []netlink.Attribute{
			name(unix.NFTA_RULE_TABLE, zoneTable), name(unix.NFTA_RULE_CHAIN, zoneChain),
			{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: want},
		}},
	} {
		m, err := message(part.kind, part.flags|netlink.Acknowledge, part.attrs)
		if err != nil {
			return false, err
		}
		batch = append(batch, m)
	}
	if err := transact(c, batch); err != nil {
		return false, fmt.Errorf("write table inet %s: %w; the kernel needs nf_tables with conntrack zones (NF_CONNTRACK_ZONES)", zoneTable, err)
	}
	return true, nil
}

// zoneIs says whether the table is awake and has the wanted rule in its chain and nothing else.
func zoneIs(want []byte) (bool, error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, zoneTable)
	if err != nil || table == nil || table.Flags != 0 {
		return false, err
	}
	chains, err := chainsOf(c, zoneTable)
	if err != nil || len(chains) != 1 || chains[0].Name != zoneChain || !sameHook(chains[0], &nftables.Chain{
		Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw,
	}) {
		return false, err
	}
	rules, err := zoneRules()
	return err == nil && len(rules) == 1 && sameAttributes(rules[0], want, 4), err
}

// zoneRules are the expressions of the rules that stand in the table.
func zoneRules() ([][]byte, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w; the kernel needs nf_tables", err)
	}
	defer c.Close()
	m, err := message(unix.NFT_MSG_GETRULE, netlink.Dump, []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(zoneTable), 0)},
	})
	if err != nil {
		return nil, err
	}
	rules, err := c.Execute(m)
	if err != nil {
		return nil, fmt.Errorf("list rules of table inet %s: %w", zoneTable, err)
	}
	var all [][]byte
	for _, r := range rules {
		attrs, err := netlink.UnmarshalAttributes(r.Data[min(len(r.Data), nfgenmsg):])
		if err != nil {
			return nil, fmt.Errorf("read rules of table inet %s: %w", zoneTable, err)
		}
		in := map[uint16][]byte{}
		for _, a := range attrs {
			in[a.Type] = a.Data
		}
		all = append(all, in[unix.NFTA_RULE_EXPRESSIONS])
	}
	return all, nil
}

// sameAttributes says whether what the kernel has is what was wanted, down to a depth. The kernel orders attributes in
// its own way and adds some that are zero.
func sameAttributes(have, want []byte, depth int) bool {
	if bytes.Equal(have, want) {
		return true
	}
	a, err := netlink.UnmarshalAttributes(have)
	b, err2 := netlink.UnmarshalAttributes(want)
	if depth == 0 || err != nil || err2 != nil || len(a) == 0 || len(b) == 0 {
		return false
	}
	// Several of one type are a list: its order counts.
	wanted := map[uint16][][]byte{}
	for _, x := range b {
		wanted[x.Type&typeMask] = append(wanted[x.Type&typeMask], x.Data)
	}
	for _, x := range a {
		list := wanted[x.Type&typeMask]
		switch {
		case len(list) > 0 && sameAttributes(x.Data, list[0], depth-1):
			wanted[x.Type&typeMask] = list[1:]
		case len(list) == 0 && len(bytes.Trim(x.Data, "\x00")) == 0:
		default:
			return false
		}
	}
	for _, list := range wanted {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

const typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

const nfgenmsg = 4 // bytes of struct nfgenmsg, before the attributes

func message(kind int, flags netlink.HeaderFlags, attrs []netlink.Attribute) (netlink.Message, error) {
	b, err := netlink.MarshalAttributes(attrs)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, b...),
	}, err
}

// transact sends messages, each to be acknowledged, as one transaction.
func transact(c *netlink.Conn, messages []netlink.Message) error {
	toTables := []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}
	edge := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: toTables}
	}
	batch := append([]netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}, messages...)
	if _, err := c.SendMessages(append(batch, edge(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}
	for range messages {
		// An acknowledgement that reports a failure is an error here.
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	return nil
}

func deleteZone() (changed bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, zoneTable)
	if err != nil || table == nil {
		return false, err
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: zoneTable})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("delete table inet %s: %w", zoneTable, err)
	}
	return true, nil
}

func zoneLeft() (bool, error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, zoneTable)
	return table != nil, err
}
