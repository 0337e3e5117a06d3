package stats

import (
	"math/rand/v2"
	"slices"

	"lateen.dev/lateen/internal/lab/results"
)

// splitWithin is how far the ends of an interval may be apart for a share to be told: it is known to a tenth either way.
const splitWithin = 0.2

// UserShare is the share of user space in what a role of a plane used, over all blocks that count together, with a 95 % bootstrap
// interval over blocks. known says whether the share is worth telling: on kernels that only look at each tick who runs one block says
// nothing, and several alike may. exact says that the kernel measured it.
func UserShare(blocks []results.Block, plane, role string, exact bool) (share Interval, known bool) {
	var used [][2]float64
	for i := range blocks {
		if b := &blocks[i]; b.Plane == plane && b.Counted() {
			if u, ok := splitOf(b, role); ok {
				used = append(used, u)
			}
		}
	}
	over := func(pick func(i int) int) (float64, bool) {
		user, all := 0.0, 0.0
		for i := range used {
			u := used[pick(i)]
			user, all = user+u[0], all+u[0]+u[1]
		}
		return user / all, all > 0
	}
	estimate, ok := over(func(i int) int { return i })
	if !ok {
		return Interval{}, false
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(used))))
	shares := make([]float64, 0, resamples)
	for range resamples {
		if s, ok := over(func(int) int { return random.IntN(len(used)) }); ok {
			shares = append(shares, s)
		}
	}
	slices.Sort(shares)
	share = Interval{estimate, quantileOfSorted(shares, 0.025), quantileOfSorted(shares, 0.975)}
	return share, exact || len(used) >= MinPairs(1) && share.High-share.Low <= splitWithin
}

// splitOf is what a role used in a block, in user space and in the kernel: in seconds, or in documents of old in what came out of each
// request's share and their number.
func splitOf(b *results.Block, role string) ([2]float64, bool) {
	if u, ok := b.Split[role]; ok {
		return u, u[0] >= 0 && u[1] >= 0 && u[0]+u[1] > 0
	}
	user, has := b.Metrics[results.CPUPerRequest(role, "user")]
	system, hasToo := b.Metrics[results.CPUPerRequest(role, "system")]
	requests := b.Metrics[results.Requests]
	if requests <= 0 {
		requests = 1
	}
	return [2]float64{user * requests, system * requests}, has && hasToo && user >= 0 && system >= 0 && user+system > 0
}
