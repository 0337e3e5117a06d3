package translate

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sort"
)

// Limits on the number of blocks of a range. Proxies search all blocks for every destination that matches nothing else.
const (
	// minBlocks are made in any case, if the range falls into so many.
	minBlocks = 64
	// blocksEach is the number of further blocks for each block of another owner, while more than mostAround of the range is left out
	// around those. Scattered blocks of other owners take about seven each until less is left out: each further block halves the part that
	// is left out around one.
	blocksEach = 8
	mostAround = 0.01
)

// Remains is the part of a range that an entry may use.
type Remains struct {
	Blocks []netip.Prefix // in order, none an address alone
	Theirs float64        // the share of the range that has other owners
	Around float64        // the share that is left out around theirs
	Holder string         // the owner of addresses in the range, if the entry may use none of it; empty if there are blocks
}

// Without returns a block without others. No result is a single address, since proxies prefer single addresses to everything else. If the
// blocks would be too many, the largest are kept. Connections to the rest of the range go where their clients send them.
func Without(block netip.Prefix, others []netip.Prefix) Remains {
	others = slices.DeleteFunc(slices.Clone(others), func(o netip.Prefix) bool { return !o.Overlaps(block) })
	if len(others) == 0 {
		return Remains{Blocks: []netip.Prefix{block}}
	}
	slices.SortFunc(others, func(x, y netip.Prefix) int {
		return cmp.Or(x.Addr().Compare(y.Addr()), cmp.Compare(x.Bits(), y.Bits()))
	})
	var out Remains
	share := func(b netip.Prefix) float64 { return math.Ldexp(1, min(block.Bits()-b.Bits(), 0)) }
	apart := others[:0] // without those that lie inside another one
	for _, o := range others {
		if len(apart) == 0 || !apart[len(apart)-1].Overlaps(o) {
			apart = append(apart, o)
			out.Theirs += share(o)
		}
	}
	out.Around = 1 - out.Theirs
	enough := func() bool {
		n := len(out.Blocks)
		return n >= minBlocks && (out.Around <= mostAround || n >= blocksEach*len(apart))
	}
	// Level by level, so that the largest come first.
	holes := []hole{{block, apart}}
	for bits := block.Bits(); bits < block.Addr().BitLen()-1 && len(holes) > 0 && !enough(); bits++ {
		var next []hole
		for _, h := range holes {
			for _, half := range h.halves() {
				switch {
				case len(half.others) == 0 && !enough():
					out.Blocks = append(out.Blocks, half.block)
					out.Around -= share(half.block)
				case len(half.others) > 0 && half.others[0].Bits() > half.block.Bits():
					next = append(next, half)
				}
			}
		}
		holes = next
	}
	out.Around = max(out.Around, 0)
	slices.SortFunc(out.Blocks, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	return out
}

// hole is a block with others in it, in the order of their addresses.
type hole struct {
	block  netip.Prefix
	others []netip.Prefix
}

func (h hole) halves() [2]hole {
	if h.others[0].Bits() <= h.block.Bits() {
		return [2]hole{h, h} // all of it has another owner
	}
	low, high := halves(h.block)
	upper := sort.Search(len(h.others), func(i int) bool { return high.Addr().Compare(h.others[i].Addr()) <= 0 })
	return [2]hole{{low, h.others[:upper]}, {high, h.others[upper:]}}
}

// halves are the two blocks that a block consists of.
func halves(block netip.Prefix) (low, high netip.Prefix) {
	bits := block.Bits()
	raw := block.Addr().AsSlice()
	raw[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(block.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}
