package isotope

import "slices"

// Endless returns a circle of services, the first one named again at its end, through which a request would go on for ever: every
// call in it is always made, and no service on the way ever fails by itself. It is empty if there is none.
//
// isotope takes every circle, and so does Parse: with a probability or an error rate in it a circle is a legitimate retry or
// gossip. One without is refused by whoever would have to run it.
func (t *Topology) Endless() []string {
	const (
		under = 1 // on the path that is being followed
		done  = 2
	)
	state := map[string]int{}
	index := map[string]*Service{}
	for i := range t.Services {
		index[t.Services[i].Name] = &t.Services[i]
	}
	type visit struct {
		service *Service
		calls   []*Call
	}
	for i := range t.Services {
		if state[t.Services[i].Name] != 0 {
			continue
		}
		// A path of its own rather than recursion: a chain may be as long as the topology.
		path := []visit{{&t.Services[i], t.Services[i].endlessCalls()}}
		state[t.Services[i].Name] = under
		for len(path) > 0 {
			last := &path[len(path)-1]
			if len(last.calls) == 0 {
				state[last.service.Name] = done
				path = path[:len(path)-1]
				continue
			}
			next := index[last.calls[0].Service]
			last.calls = last.calls[1:]
			if next == nil {
				continue
			}
			switch state[next.Name] {
			case under:
				from := slices.IndexFunc(path, func(v visit) bool { return v.service == next })
				var circle []string
				for _, v := range path[from:] {
					circle = append(circle, v.service.Name)
				}
				return append(circle, next.Name)
			case 0:
				state[next.Name] = under
				path = append(path, visit{next, next.endlessCalls()})
			}
		}
	}
	return nil
}

// endlessCalls are those that every request to the service leads to.
func (s *Service) endlessCalls() []*Call {
	if s.ErrorRate > 0 {
		return nil
	}
	return slices.DeleteFunc(s.calls(), func(c *Call) bool { return !c.certain() })
}
