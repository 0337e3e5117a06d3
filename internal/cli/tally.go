package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// pairsLive is how long the second end of a connection is waited for. Both ends tell within the time that a message takes.
const pairsLive = 10 * time.Second

// grave orders verdicts: of two that the ends of a connection give, the graver one counts.
var grave = []api.Verdict{api.OK, api.Open, api.WouldDeny, api.Failed, api.DeniedByPeer, api.Denied}

// tally counts connections that ended, and not how often they were seen: the proxies of both ends tell of a connection between two pods
// of the mesh, and api.Connection.Pair is the same in both.
type tally struct {
	ended    int
	verdicts map[api.Verdict]int
	causes   map[cause]int
	objects  map[api.Key]int
	pairs    map[string]sighting
	pruned   time.Time
}

// cause is a line of the summary without its count.
type cause struct {
	verdict api.Verdict
	text    string
}

type sighting struct {
	verdict   api.Verdict
	direction string
	reason    explained
	at        time.Time
}

func newTally() *tally {
	return &tally{verdicts: map[api.Verdict]int{}, causes: map[cause]int{}, objects: map[api.Key]int{}, pairs: map[string]sighting{}}
}

// add counts a connection that ended, as one of its ends sees it.
func (t *tally) add(c api.Connection, reason explained, now time.Time) {
	seen := sighting{c.Verdict(), c.Direction, reason, now}
	if seen.verdict == api.Retried {
		return // the connection is told of as another attempt
	}
	// The number comes from the client's proxy. Two connections that arrive with one number are two: their client repeats itself.
	if other, known := t.pairs[c.Pair]; known && c.Pair != "" && other.direction != seen.direction {
		delete(t.pairs, c.Pair) // a connection has two ends
		if slices.Index(grave, seen.verdict) <= slices.Index(grave, other.verdict) {
			return
		}
		t.count(other, -1)
		t.count(seen, 1)
		return
	}
	t.ended++
	t.count(seen, 1)
	if c.Pair == "" {
		return
	}
	t.pairs[c.Pair] = seen
	if now.Sub(t.pruned) >= pairsLive {
		t.pruned = now
		for pair, s := range t.pairs {
			if now.Sub(s.at) >= pairsLive {
				delete(t.pairs, pair)
			}
		}
	}
}

func (t *tally) count(s sighting, n int) {
	t.verdicts[s.verdict] += n
	if s.verdict != api.Denied && s.verdict != api.WouldDeny {
		return
	}
	text := s.reason.Text()
	if s.verdict == api.WouldDeny && len(s.reason.objects) > 0 {
		text = "by " + names(s.reason.objects)
	}
	t.causes[cause{s.verdict, text}] += n
	for _, o := range s.reason.objects {
		t.objects[o] += n
	}
}

func names(objects []api.Key) string {
	all := make([]string, len(objects))
	for i, o := range objects {
		all[i] = o.Namespace + "/" + o.Name
	}
	return strings.Join(all, ", ")
}

func (t *tally) denied() int { return t.verdicts[api.Denied] + t.verdicts[api.DeniedByPeer] }

// lines are the summary: how many ended and how, then for each cause how many were or would be denied by it.
func (t *tally) lines() []string {
	noun := "connections"
	if t.ended == 1 {
		noun = "connection"
	}
	first := fmt.Sprintf("%d %s ended: %d denied, %d failed", t.ended, noun, t.denied(), t.verdicts[api.Failed])
	if n := t.verdicts[api.WouldDeny]; n > 0 {
		first += fmt.Sprintf(", %d would be denied", n)
	}
	lines := []string{first}
	var causes []cause
	for c, n := range t.causes {
		if n > 0 {
			causes = append(causes, c)
		}
	}
	slices.SortFunc(causes, func(a, b cause) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(t.causes[b], t.causes[a]), cmp.Compare(a.text, b.text))
	})
	for _, c := range causes {
		how := "denied: "
		switch {
		case c.verdict == api.WouldDeny:
			how = "would be denied "
		case strings.HasPrefix(c.text, "denied "):
			how = ""
		}
		lines = append(lines, fmt.Sprintf("%d %s%s", t.causes[c], how, c.text))
	}
	return lines
}

// commands show the objects that refused connections, the most frequent ones first.
func (t *tally) commands(meshFlag string) (commands []string) {
	const most = 3
	var objects []api.Key
	for o, n := range t.objects {
		if n > 0 {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b api.Key) int {
		return cmp.Or(cmp.Compare(t.objects[b], t.objects[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, o := range objects[:min(most, len(objects))] {
		which := "-A"
		if o.Name != "" {
			which = o.Name + " -n " + o.Namespace
		}
		commands = append(commands, fmt.Sprintf("lateen get %s %s%s", strings.ToLower(o.Kind), which, meshFlag))
	}
	return commands
}
