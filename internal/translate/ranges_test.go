package translate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func cidrs(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestARangeWithoutWhatIsSomebodyElses(t *testing.T) {
	for name, tt := range map[string]struct {
		block        string
		others, want []netip.Prefix
	}{
		"nobody there":         {"10.0.0.0/8", cidrs("192.0.2.1/32", "fd00::/8"), cidrs("10.0.0.0/8")},
		"half of it":           {"10.0.0.0/8", cidrs("10.128.0.0/9"), cidrs("10.0.0.0/9")},
		"all of it":            {"10.0.0.0/31", cidrs("10.0.0.0/24"), nil},
		"an address":           {"10.0.0.0/29", cidrs("10.0.0.5/32"), cidrs("10.0.0.0/30", "10.0.0.6/31")},
		"no address alone":     {"10.0.0.0/31", cidrs("10.0.0.1/32"), nil},
		"several in one place": {"10.0.0.0/28", cidrs("10.0.0.1/32", "10.0.0.2/32", "10.0.0.4/30"), cidrs("10.0.0.8/29")},
		"everything":           {"0.0.0.0/0", cidrs("128.0.0.0/2"), cidrs("0.0.0.0/1", "192.0.0.0/2")},
		"IPv6":                 {"fd00::/125", cidrs("fd00::1/128"), cidrs("fd00::2/127", "fd00::4/126")},
	} {
		if got := Without(netip.MustParsePrefix(tt.block), tt.others).Blocks; !slices.Equal(got, tt.want) {
			t.Errorf("%s: left is %v, want %v", name, got, tt.want)
		}
	}
}

// However many others there are and wherever: nothing of them is left, nothing is twice, almost all is left, and the blocks are not too many.
func TestAlmostAllOfARangeIsLeftInFewBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	near := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rng.IntN(4)), byte(rng.IntN(256)), byte(rng.IntN(256))}), 32)
	}
	anywhere := func() netip.Prefix {
		bits := 32 - rng.IntN(2)*8
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256))}), bits).Masked()
	}
	for name, tt := range map[string]struct {
		block string
		other func() netip.Prefix
		most  func(n int) int
	}{
		"side by side": {"10.0.0.0/8", near, func(int) int { return 400 }},
		"in a corner":  {"0.0.0.0/0", near, func(int) int { return minBlocks }},
		"anywhere":     {"0.0.0.0/0", anywhere, func(n int) int { return max(minBlocks, blocksEach*n) }},
	} {
		block := netip.MustParsePrefix(tt.block)
		for _, n := range []int{1, 2, 10, 20, 50, 100, 200, 1000} {
			var others []netip.Prefix
			for range n {
				others = append(others, tt.other())
			}
			left := Without(block, others)
			kept := 0.0
			for i, b := range left.Blocks {
				kept += math.Ldexp(1, block.Bits()-b.Bits())
				overlaps := func(o netip.Prefix) bool { return o.Overlaps(b) }
				if slices.ContainsFunc(others, overlaps) || i > 0 && left.Blocks[i-1].Addr().Compare(b.Addr()) >= 0 || i > 0 && left.Blocks[i-1].Overlaps(b) || b.IsSingleIP() {
					t.Fatalf("%s, %d others: %v is left, of %v", name, n, b, left)
				}
			}
			if most := tt.most(n); len(left.Blocks) > most {
				t.Errorf("%s, %d others: %d blocks are left, more than %d", name, n, len(left.Blocks), most)
			}
			if kept < 0.985 || left.Around > 0.015 || math.Abs(kept+left.Theirs+left.Around-1) > 1e-9 {
				t.Errorf("%s, %d others: %.2f%% is left in %d blocks, %.2g is theirs, %.2g around", name, n, 100*kept, len(left.Blocks), left.Theirs, left.Around)
			}
		}
	}
}

// Where there is no room between others, their author is told.
func TestOneIsToldHowMuchOfARangeIsLeftOut(t *testing.T) {
	var every []netip.Prefix // every second address
	for i := range 128 {
		every = append(every, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 * i)}), 32))
	}
	for name, tt := range map[string]struct {
		others       []netip.Prefix
		reason, said string
	}{
		"nobody":         {nil, "Accepted", "the object is accepted as it is written"},
		"one":            {cidrs("10.0.0.7/32"), "Accepted", "range 10.0.0.0/16 is without the addresses of nodes and their pods, with some around those 0.0031 % of it"},
		"every second":   {every, "Accepted", "0.39 % of it"},
		"one in another": {cidrs("10.0.128.0/17", "10.0.192.0/18"), "Accepted", "those 50 % of it"},
		"large ones":     {append(cidrs("10.0.128.0/17", "10.0.64.0/18"), every...), "Accepted", "75 % of it"},
	} {
		v := newVerdict()
		c := Context{Part: func(block netip.Prefix) Remains { return Without(block, tt.others) }}
		c.partOf(netip.MustParsePrefix("10.0.0.0/16"), v)
		if got := v.conditions()[0]; got.Reason != tt.reason || !strings.Contains(got.Message, tt.said) {
			t.Errorf("%s: one is told %+v, want %s %q", name, got, tt.reason, tt.said)
		}
	}
	v := newVerdict()
	c := Context{Part: func(block netip.Prefix) Remains { return Without(block, every) }}
	c.partOf(netip.MustParsePrefix("10.0.0.0/23"), v)
	if got := v.conditions()[0]; got.Reason != "RangeReduced" || !strings.Contains(got.Message, "pods, 25 % of it, and without 25 % of it around those") {
		t.Errorf("one is told %+v", got)
	}
}

func BenchmarkWithout(b *testing.B) {
	var others []netip.Prefix
	for i := range 1000 {
		others = append(others, netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.7/32", i/250, i%250)), netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", 100+i/250, i%250)))
	}
	for b.Loop() {
		Without(netip.MustParsePrefix("0.0.0.0/0"), others)
	}
}
