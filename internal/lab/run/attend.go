package run

import (
	"context"
	"fmt"
	"slices"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// attend sees between blocks who of all planes' processes has ended since the last look, and learns who is there now. What a
// supervisor has started anew is as dead as what nobody has: only the old process is asked for.
func (s *session) attend(ctx context.Context) error {
	listed := map[string][]dataplanes.Process{}
	var pids []int
	for _, on := range s.running {
		name := on.about.Name
		var err error
		if listed[name], err = on.Processes(ctx); err != nil {
			return err
		}
		s.strength[name] = max(s.strength[name], len(listed[name]))
		for _, p := range slices.Concat(s.known[name], listed[name]) {
			pids = append(pids, p.PID)
		}
	}
	alive, err := s.Account.Read(pids)
	if err != nil {
		return err
	}
	for name, processes := range listed {
		if ended := gone(s.known[name], alive, "between two blocks"); len(ended) > 0 {
			s.missed[name] = append(s.missed[name], ended...)
		}
		s.known[name] = slices.DeleteFunc(processes, func(p dataplanes.Process) bool {
			_, there := alive[p.PID]
			return !there
		})
	}
	return nil
}

// forget is for changes that end processes on purpose.
func (s *session) forget() {
	s.known, s.strength = map[string][]dataplanes.Process{}, map[string]int{}
}

// blame tells in a plane's block what has ended of it since its last one, and waits until as much runs again as did before. That it
// does not come back is the plane's failure.
func (s *session) blame(ctx context.Context, on running, b *results.Block) error {
	name := on.about.Name
	if len(s.missed[name]) == 0 {
		return nil
	}
	b.Failed = append(b.Failed, s.missed[name]...)
	delete(s.missed, name)
	if len(s.known[name]) >= s.strength[name] {
		return nil
	}
	err := s.recover(ctx, on, make([]dataplanes.Process, s.strength[name]), returnTime)
	if err != nil && ctx.Err() == nil {
		b.Failed = append(b.Failed, err.Error())
	}
	if err == nil {
		err = s.attend(ctx)
	}
	return err
}

// miss sees after a block of one plane who has ended, also of the others, and forgets them: each is told once. That of the plane
// itself is told by its block.
func (s *session) miss(on running, cell scenario.Cell, alive map[int]procstat.Usage) {
	for _, other := range s.running {
		name := other.about.Name
		if name != on.about.Name {
			if ended := gone(s.known[name], alive, "while "+on.about.Name+" was measured"); len(ended) > 0 {
				s.missed[name] = append(s.missed[name], ended...)
			}
		}
		s.known[name] = slices.DeleteFunc(s.known[name], func(p dataplanes.Process) bool {
			_, there := alive[p.PID]
			return !there || name == on.about.Name && cell.Kill != nil && p.Role == cell.Kill.Role
		})
	}
}

// gone names the processes that are not alive any more; when says when they ended.
func gone(processes []dataplanes.Process, alive map[int]procstat.Usage, when string) (ended []string) {
	for _, p := range processes {
		if _, there := alive[p.PID]; !there && p.Role != dataplanes.RoleEngine {
			ended = append(ended, fmt.Sprintf("a process ended %s: %s %s", when, p.Role, p.Name))
		}
	}
	return ended
}

// everybody lists the processes of all planes, and this one.
func (s *session) everybody() []int {
	pids := []int{s.self}
	for _, on := range s.running {
		for _, p := range s.known[on.about.Name] {
			if !slices.Contains(pids, p.PID) {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids
}
