package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A pod chooses how many tables, chains and rules it has, and what they consist of. The library reads all that it lists into
// memory, and fails at expressions that it does not know. So the kernel is asked for the number of rules before any are read.

// rulesIn is how many rules a base chain has; one that is not there has none.
func rulesIn(table *nftables.Table, chain string) (n int, err error) {
	err = rulesRequest(unix.NFT_MSG_GETCHAIN, 0, table.Family, func(_ uint8, attributes []byte) bool {
		c, readErr := readChain(attributes)
		if readErr == nil && c.name == chain {
			n = int(c.rules)
		}
		return true
	}, nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, nl.ZeroTerminated(table.Name)), nl.NewRtAttr(unix.NFTA_CHAIN_NAME, nl.ZeroTerminated(chain)))
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for chain %s of table %s: %w; the kernel needs nf_tables", chain, table.Name, err)
	}
	return n, nil
}

// countedChain is what is read of a chain.
type countedChain struct {
	table, name, kind string
	rules             uint32
}

func readChain(attributes []byte) (c countedChain, err error) {
	err = eachAttribute(attributes, func(kind uint16, value []byte) error {
		switch kind {
		case unix.NFTA_CHAIN_TABLE:
			c.table = nl.BytesToString(value)
		case unix.NFTA_CHAIN_NAME:
			c.name = nl.BytesToString(value)
		case unix.NFTA_CHAIN_TYPE:
			c.kind = nl.BytesToString(value)
		case unix.NFTA_CHAIN_USE:
			// Nothing can jump to a base chain: what uses it are its rules.
			if len(value) >= 4 {
				c.rules = binary.BigEndian.Uint32(value)
			}
		}
		return nil
	})
	return c, err
}

// eachChain lists the chains of the calling thread's network namespace, until fn has enough.
func eachChain(fn func(family uint8, c countedChain) bool) error {
	return rulesRequest(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nftables.TableFamilyUnspecified, func(family uint8, attributes []byte) bool {
		c, err := readChain(attributes)
		return err != nil || fn(family, c)
	})
}

// anyTable says whether the calling thread's network namespace has a table.
func anyTable() (there bool, err error) {
	err = rulesRequest(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, nftables.TableFamilyUnspecified, func(uint8, []byte) bool {
		there = true
		return false
	})
	if err != nil {
		return false, fmt.Errorf("list the tables of nftables: %w; the kernel needs nf_tables", err)
	}
	return there, nil
}

func rulesRequest(operation, flags int, family nftables.TableFamily, fn func(family uint8, attributes []byte) bool, attributes ...*nl.RtAttr) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|operation, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0})
	for _, a := range attributes {
		r.AddData(a)
	}
	err := r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		return len(message) < nl.SizeofNfgenmsg || fn(message[0], message[nl.SizeofNfgenmsg:])
	})
	// A pod that changes its rules all the time interrupts every dump. It must not keep the agent from an answer by that.
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	return err
}
