package compile

import (
	"maps"
	"slices"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// departed keeps the hosts that objects have lost for as long as a waypoint may serve them. A waypoint hears of policies before it hears that
// a Binding ends: a policy that lost the host at once would not hold for the requests in between.
type departed struct {
	of     map[model.Key]*departure
	holder map[string]model.Key // host → the object that had it
}

// departure is what an object has lost.
type departure struct {
	decision *translate.Decision  // how the object was to be reached
	until    map[string]time.Time // by host on the wire, "namespace/hostname"
}

func newDeparted() *departed {
	return &departed{of: map[model.Key]*departure{}, holder: map[string]model.Key{}}
}

// leave keeps a host of an object until a time.
func (d *departed) leave(host string, of model.Key, decision *translate.Decision, until time.Time) {
	d.end(host)
	x := d.of[of]
	if x == nil {
		x = &departure{until: map[string]time.Time{}}
		d.of[of] = x
	}
	x.decision, x.until[host], d.holder[host] = decision, until, of
}

// end forgets a host, and says whose it was.
func (d *departed) end(host string) (of model.Key, had bool) {
	of, had = d.holder[host]
	if !had {
		return of, false
	}
	delete(d.holder, host)
	x := d.of[of]
	if delete(x.until, host); len(x.until) == 0 {
		delete(d.of, of)
	}
	return of, true
}

// with adds to how an object is to be reached what it has lost. The Gateways of an object that is gone are those that it had.
func (d *departed) with(key model.Key, bound translate.Bound) translate.Bound {
	x := d.of[key]
	if x == nil {
		return bound
	}
	if bound.Decision == nil {
		bound.Decision = x.decision
	}
	bound.Hosts = slices.Concat(bound.Hosts, slices.Sorted(maps.Keys(x.until)))
	return bound
}

// expire forgets the hosts that no waypoint serves any more, and returns the objects that had them.
func (d *departed) expire(now time.Time) []model.Key {
	of := map[model.Key]bool{}
	for key, x := range d.of {
		for host, until := range x.until {
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
	for _, x := range d.of {
		for _, until := range x.until {
			if at.IsZero() || until.Before(at) {
				at = until
			}
		}
	}
	return at
}
