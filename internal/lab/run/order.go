package run

import (
	"math/rand/v2"
	"slices"
)

// order says in which order n planes are measured in a round (from 1) of a cell: reversed in every second round (ABBA), so that
// a slow drift of the machine hurts all alike, or at random, so that no rhythm of the machine can meet one of ours.
func order(n int, abba bool, seed uint64, cell, round int) []int {
	planes := make([]int, n)
	for i := range planes {
		planes[i] = i
	}
	if abba {
		if round%2 == 0 {
			slices.Reverse(planes)
		}
		return planes
	}
	random := rand.New(rand.NewPCG(seed, uint64(cell)<<32|uint64(round)))
	random.Shuffle(n, func(i, j int) { planes[i], planes[j] = planes[j], planes[i] })
	return planes
}
