package redirect

import (
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// A connection with the proxy's mark is let out, and every process with CAP_NET_RAW (since Linux 5.17) or CAP_NET_ADMIN can set the
// mark. No process of a pod leaves the pod's cgroup, and the proxy is never in it: so packets of sockets made there lose the marks that are
// ours, before any other rule looks at them. It is not asked whether a socket is the proxy's own: a proxy that is replaced has another
// cgroup, and those of its predecessor that it was handed have theirs.

// Cgroup is a cgroup of version 2. The zero value is none.
type Cgroup struct {
	ID    uint64 // its folder's inode
	Level uint32 // below the root of a cgroup namespace
	Root  string // where that namespace is to be found; empty: it is the calling thread's
}

// Known says whether there is a cgroup.
func (c Cgroup) Known() bool { return c.ID != 0 }

// holds matches packets whose socket was made in the cgroup, or in one below it.
func (c Cgroup) holds() []expr.Any {
	return append(cgroupAt(c.Level), compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint64(c.ID)))
}

// cgroupAt loads what the cgroup of the packet's socket is below, at a level; it does not match if the socket's cgroup is above that.
func cgroupAt(level uint32) []expr.Any {
	return []expr.Any{&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: level, Register: 1}}
}

// enter has the calling thread count levels from where the cgroup's are counted.
func (c Cgroup) enter() error {
	if c.Root == "" {
		return nil
	}
	f, err := os.Open(c.Root)
	if err != nil {
		return fmt.Errorf("open the cgroup namespace of the node's init: %w; the agent needs hostPID and CAP_SYS_PTRACE", err)
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("enter the cgroup namespace of the node's init: %w; the agent needs CAP_SYS_ADMIN", err)
	}
	return nil
}

const disownOutbound = "disown-outbound"

// disowned are the marks that are ours alone.
var disowned = []uint32{ProxyMark, ReturnMark}

// disown takes the marks off what the pod's own processes open. It comes before connection tracking, and so before the zones.
func disown(chain func(string, nftables.ChainType, *nftables.ChainHook, *nftables.ChainPriority) *nftables.Chain, own Cgroup) ruledChain {
	unmark := []expr.Any{
		&expr.Counter{},
		&expr.Meta{Register: 1, Key: expr.MetaKeyMARK},
		maskWith(^uint32(MarkMask), 0),
		&expr.Meta{Register: 1, Key: expr.MetaKeyMARK, SourceRegister: true},
	}
	var rules [][]expr.Any
	for _, mark := range disowned {
		rules = append(rules,
			rule(markIs(expr.CmpOpEq, mark), opening(), own.holds(), unmark),
			rule(markIs(expr.CmpOpEq, mark), udp(), own.holds(), unmark))
	}
	before := nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 10)
	return ruledChain{chain: chain(disownOutbound, nftables.ChainTypeFilter, nftables.ChainHookOutput, before), rules: rules}
}

// Disowned counts the packets of the pod's own processes that had a mark of ours since the rules were written.
func Disowned(ns *netns.Namespace) (packets uint64, err error) {
	err = ns.Do(func() error {
		c, closer, err := connect()
		if err != nil {
			return err
		}
		defer closer()
		if n, err := rulesIn(ourTable(), disownOutbound); err != nil || n > 2*len(disowned) {
			return err // more than were written are somebody else's
		}
		rules, err := c.GetRules(ourTable(), &nftables.Chain{Name: disownOutbound})
		if err != nil {
			return fmt.Errorf("list rules of chain %s: %w", disownOutbound, err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					packets += counter.Packets
				}
			}
		}
		return nil
	})
	return packets, err
}

// CanDisown fails if the kernel does not tell which cgroup made a socket, or not in a namespace that is not the node's.
func CanDisown(own Cgroup) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		if err := own.enter(); err != nil {
			return err
		}
		c, closer, err := connect()
		if err != nil {
			return err
		}
		defer closer()
		table := c.AddTable(ourTable())
		written := disown(func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
			return &nftables.Chain{Name: name, Table: table, Type: kind, Hooknum: hook, Priority: priority}
		}, own)
		c.AddChain(written.chain)
		for _, exprs := range written.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: written.chain, Exprs: exprs})
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("match the cgroup of a socket: %w; the kernel needs nf_tables with socket (Linux 5.13)", err)
		}
		return nil
	})
}
