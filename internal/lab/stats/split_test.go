package stats

import (
	"math"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// What ticks have seen of a process that uses 30 % of its time in user space, in blocks in which the load was in step with them.
func TestASplitIsToldWhereTheBlocksTogetherKnowIt(t *testing.T) {
	of := func(shares ...float64) (blocks []results.Block) {
		for i, s := range shares {
			blocks = append(blocks, results.Block{Plane: "lateen", Round: i + 1, Split: map[string][2]float64{results.RoleProxies: {s, 1 - s}}})
		}
		return blocks
	}
	for _, tt := range []struct {
		name   string
		blocks []results.Block
		exact  bool
		share  float64
		known  bool
	}{
		{"one block", of(0.3), false, 0.3, false},
		{"one block, measured", of(0.3), true, 0.3, true},
		{"five alike", of(0.3, 0.3, 0.3, 0.3, 0.3), false, 0.3, false},
		{"six alike", of(0.3, 0.31, 0.29, 0.3, 0.32, 0.28), false, 0.3, true},
		{"eight in step with the ticks", of(0.03, 0.9, 0.05, 0.1, 0.62, 0.03, 0.6, 0.07), false, 0.3, false},
		{"nothing", nil, true, 0, false},
		{"nothing seen", []results.Block{{Plane: "lateen", Split: map[string][2]float64{results.RoleProxies: {0, 0}}}}, true, 0, false},
	} {
		share, known := UserShare(tt.blocks, "lateen", results.RoleProxies, tt.exact)
		if math.Abs(share.Estimate-tt.share) > 1e-9 || known != tt.known || known && (share.Low > share.Estimate || share.High < share.Estimate) {
			t.Errorf("%s: got %+v, known %v", tt.name, share, known)
		}
	}
	// Blocks weigh by what was used in them; those that were rejected and those of others do not.
	blocks := of(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
	blocks[0].Split[results.RoleProxies] = [2]float64{0, 3}
	blocks = append(blocks, results.Block{Plane: "lateen", Rejected: []string{"x"}, Split: map[string][2]float64{results.RoleProxies: {100, 0}}},
		results.Block{Plane: "none", Split: map[string][2]float64{results.RoleProxies: {100, 0}}})
	if share, known := UserShare(blocks, "lateen", results.RoleProxies, false); math.Abs(share.Estimate-2.5/8) > 1e-9 || known {
		t.Errorf("got %+v, known %v", share, known)
	}
}

func TestTheSplitOfADocumentOfOldIsPooledAsWell(t *testing.T) {
	block := func(requests, user, system float64) results.Block {
		return results.Block{Plane: "lateen", Metrics: map[string]float64{results.Requests: requests,
			results.CPUPerRequest(results.RoleApp, "user"): user, results.CPUPerRequest(results.RoleApp, "system"): system}}
	}
	share, known := UserShare([]results.Block{block(100, 10, 0), block(300, 0, 10)}, "lateen", results.RoleApp, false)
	if share.Estimate != 0.25 || known {
		t.Errorf("got %+v, known %v", share, known)
	}
}
