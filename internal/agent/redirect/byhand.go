package redirect

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// handTable is a table of family inet with one chain of type filter that is written, and compared, by hand: the library
// cannot say of which direction of a connection something is.
type handTable struct {
	name, chain string
	hook        *nftables.ChainHook
	priority    *nftables.ChainPriority
	rules       []handRule
	needs       string // of the kernel, beside nf_tables
}

// handRule is what a rule consists of: expressions of the library, and directed ones.
type handRule []any

// byHand joins expressions, lists of them, and directed ones.
func byHand(parts ...any) handRule {
	var all handRule
	for _, p := range parts {
		if list, ok := p.([]expr.Any); ok {
			for _, e := range list {
				all = append(all, e)
			}
			continue
		}
		all = append(all, p)
	}
	return all
}

// directed loads what connection tracking knows of one direction of the connection into the first register, or sets it
// from there.
type directed struct {
	key       uint32
	direction byte
	set       bool
}

// Directions of a connection, linux/netfilter/nf_conntrack_tuple_common.h.
const (
	original = 0
	reply    = 1
)

func (d directed) marshal() ([]byte, error) {
	register := netlink.Attribute{Type: unix.NFTA_CT_DREG, Data: binary.BigEndian.AppendUint32(nil, unix.NFT_REG_1)}
	if d.set {
		register.Type = unix.NFTA_CT_SREG
	}
	data, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_CT_KEY, Data: binary.BigEndian.AppendUint32(nil, d.key)},
		{Type: unix.NFTA_CT_DIRECTION, Data: []byte{d.direction}},
		register,
	})
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_EXPR_NAME, Data: []byte("ct\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_EXPR_DATA, Data: data},
	})
}

func (r handRule) marshal() ([]byte, error) {
	var list []netlink.Attribute
	for _, part := range r {
		var b []byte
		var err error
		switch part := part.(type) {
		case directed:
			b, err = part.marshal()
		case expr.Any:
			b, err = expr.Marshal(unix.NFPROTO_INET, part)
		default:
			err = fmt.Errorf("a rule has %T in it", part)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: b})
	}
	return netlink.MarshalAttributes(list)
}

func (t handTable) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: t.name}
}

func (t handTable) marshal() ([][]byte, error) {
	var all [][]byte
	for _, r := range t.rules {
		b, err := r.marshal()
		if err != nil {
			return nil, fmt.Errorf("describe table inet %s: %w", t.name, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// put makes the table be what it should, in one transaction, and leaves one that already is alone.
func (t handTable) put() (changed bool, err error) {
	want, err := t.marshal()
	if err != nil {
		return false, err
	}
	same, there, err := t.is(want)
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
		{Type: unix.NFTA_HOOK_HOOKNUM, Data: binary.BigEndian.AppendUint32(nil, uint32(*t.hook))},
		{Type: unix.NFTA_HOOK_PRIORITY, Data: binary.BigEndian.AppendUint32(nil, uint32(*t.priority))},
	})
	if err != nil {
		return false, err
	}
	table := []netlink.Attribute{name(unix.NFTA_TABLE_NAME, t.name)}
	type part struct {
		kind  int
		flags netlink.HeaderFlags
		attrs []netlink.Attribute
	}
	var parts []part
	if there {
		// Adding before deleting makes the deletion succeed also if it has gone meanwhile.
		parts = []part{{unix.NFT_MSG_NEWTABLE, netlink.Create, table}, {unix.NFT_MSG_DELTABLE, 0, table}}
	}
	parts = append(parts,
		part{unix.NFT_MSG_NEWTABLE, netlink.Create, table},
		part{unix.NFT_MSG_NEWCHAIN, netlink.Create, []netlink.Attribute{
			name(unix.NFTA_CHAIN_TABLE, t.name), name(unix.NFTA_CHAIN_NAME, t.chain), name(unix.NFTA_CHAIN_TYPE, "filter"),
			{Type: unix.NLA_F_NESTED | unix.NFTA_CHAIN_HOOK, Data: hook},
		}})
	for _, r := range want {
		parts = append(parts, part{unix.NFT_MSG_NEWRULE, netlink.Create | netlink.Append, []netlink.Attribute{
			name(unix.NFTA_RULE_TABLE, t.name), name(unix.NFTA_RULE_CHAIN, t.chain),
			{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: r},
		}})
	}
	var batch []netlink.Message
	for _, part := range parts {
		m, err := message(part.kind, part.flags|netlink.Acknowledge, part.attrs)
		if err != nil {
			return false, err
		}
		batch = append(batch, m)
	}
	if err := transact(c, batch); err != nil {
		return false, fmt.Errorf("write table inet %s: %w; the kernel needs nf_tables with %s", t.name, err, t.needs)
	}
	return true, nil
}

// is says whether the table is awake and has the wanted rules in its chain and nothing else, and whether it is there.
func (t handTable) is(want [][]byte) (same, there bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, false, err
	}
	defer closer()
	table, err := findTable(c, t.table())
	if err != nil || table == nil || table.Flags != 0 || !holdsNothingElse(table, 1, 0) {
		return false, table != nil, err
	}
	chain, err := c.ListChain(t.table(), t.chain)
	if err != nil || !sameHook(chain, &nftables.Chain{Type: nftables.ChainTypeFilter, Hooknum: t.hook, Priority: t.priority}) {
		return false, true, nil
	}
	if n, err := rulesIn(t.table(), t.chain); err != nil || n != len(want) {
		return false, true, err
	}
	have, err := t.have()
	if err != nil || len(have) != len(want) {
		return false, true, err
	}
	for i := range want {
		if !sameAttributes(have[i], want[i], 4) {
			return false, true, nil
		}
	}
	return true, true, nil
}

// have are the expressions of the rules that stand in the table.
func (t handTable) have() ([][]byte, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w; the kernel needs nf_tables", err)
	}
	defer c.Close()
	m, err := message(unix.NFT_MSG_GETRULE, netlink.Dump, []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(t.name), 0)},
	})
	if err != nil {
		return nil, err
	}
	rules, err := c.Execute(m)
	if err != nil {
		return nil, fmt.Errorf("list rules of table inet %s: %w", t.name, err)
	}
	var all [][]byte
	for _, r := range rules {
		attrs, err := netlink.UnmarshalAttributes(r.Data[min(len(r.Data), nfgenmsg):])
		if err != nil {
			return nil, fmt.Errorf("read rules of table inet %s: %w", t.name, err)
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
// its own way, and adds and leaves out some that are zero.
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
		for _, rest := range list {
			if len(bytes.Trim(rest, "\x00")) > 0 {
				return false
			}
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
