package stats

import "lateen.dev/lateen/internal/lab/results"

// ManyFailed is the share of a plane's requests from which on their failing is worth a word beside everything else about it.
const ManyFailed = 0.01

// FailedShare is the mean share of failed requests over a plane's blocks that count, and how many failed in them by kind.
func FailedShare(blocks []results.Block, plane string) (share float64, kinds map[string]uint64) {
	return failedShare(blocks, plane, true)
}

// FailedShareOfRejected is the same over the blocks that do not count. It enters no comparison, for their surroundings may have
// had a part in it.
func FailedShareOfRejected(blocks []results.Block, plane string) (share float64, kinds map[string]uint64) {
	return failedShare(blocks, plane, false)
}

func failedShare(blocks []results.Block, plane string, counted bool) (share float64, kinds map[string]uint64) {
	kinds = map[string]uint64{}
	n := 0.0
	for _, b := range blocks {
		if b.Plane != plane || b.Counted() != counted {
			continue
		}
		for kind, failed := range b.Errors {
			kinds[kind] += failed
		}
		if v, ok := b.Metrics[results.FailedShare]; ok {
			share, n = share+v, n+1
		}
	}
	if n == 0 {
		return 0, kinds
	}
	return share / n, kinds
}
