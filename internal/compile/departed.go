package compile

import (
	"maps"
	"slices"
	"time"

	"lateen.dev/lateen/internal/model"
)

// departed keeps the hosts that objects have lost for as long as a waypoint may serve them. A waypoint hears of policies before it hears that
// a Binding ends: a policy that lost the host at once would not hold for the requests in between.
type departed struct {
	of     map[model.Key]map[string]time.Time // object → host on the wire, "namespace/hostname" → until when
	holder map[string]model.Key               // host → the object that had it
}

func newDeparted() *departed {
	return &departed{of: map[model.Key]map[string]time.Time{}, holder: map[string]model.Key{}}
}

// leave keeps a host of an object until a time.
func (d *departed) leave(host string, of model.Key, until time.Time) {
	d.end(host)
	if d.of[of] == nil {
		d.of[of] = map[string]time.Time{}
	}
	d.of[of][host], d.holder[host] = until, of
}

// end forgets a host, and says whose it was.
func (d *departed) end(host string) (of model.Key, had bool) {
	of, had = d.holder[host]
	if !had {
		return of, false
	}
	delete(d.holder, host)
	if delete(d.of[of], host); len(d.of[of]) == 0 {
		delete(d.of, of)
	}
	return of, true
}

// hosts are those that an object has lost, sorted.
func (d *departed) hosts(of model.Key) []string { return slices.Sorted(maps.Keys(d.of[of])) }

// expire forgets the hosts that no waypoint serves any more, and returns the objects that had them.
func (d *departed) expire(now time.Time) []model.Key {
	of := map[model.Key]bool{}
	for key, hosts := range d.of {
		for host, until := range hosts {
			if !now.Before(until) {
				d.end(host)
				of[key] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(of), model.Key.Compare)
}

// next is when the first host expires; zero if there is none.
func (d *departed) next() (at time.Time) {
	for _, hosts := range d.of {
		for _, until := range hosts {
			if at.IsZero() || until.Before(at) {
				at = until
			}
		}
	}
	return at
}
