package run

import (
	"context"
	"fmt"

	"lateen.dev/lateen/internal/lab/cpscale"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// control carries out an experiment on the control plane alone: no plane is started, and nothing is compared.
func (s *session) control(ctx context.Context, sc *scenario.Scenario, out *results.Outcome) error {
	program, err := s.Control()
	if err != nil {
		return err
	}
	s.know(results.Plane{Name: results.KindLateen, Kind: results.KindLateen, Version: s.Version})
	s.Progress.Start(sc.Name)
	size := *sc.Control
	out.Notes = append(out.Notes, fmt.Sprintf("%d services, %d pods, %d proxies; changes for %g s at each rate", size.Services, size.Pods, size.Proxies, s.seconds))
	facts, err := cpscale.Run(ctx, cpscale.Options{
		Size: size, Seconds: s.seconds, Control: program, Account: s.Account, ExactSplit: s.doc.Machine.ExactSplit,
		Progress: func(what string) { s.Progress.Update(sc.Name + ": " + what) },
	})
	out.Facts = append(out.Facts, facts...)
	for _, f := range facts {
		if limit := 100 * (s.doc.Gates.OtherCPU + s.doc.Gates.Steal); f.Name == cpscale.OthersShare && f.Value > limit {
			note := fmt.Sprintf("%s: others used %.3g %% of the machine, and nothing here is measured a second time for that: the numbers of this setting are theirs as well", f.Group, f.Value)
			out.Notes = append(out.Notes, note)
			s.Progress.Warn(sc.Name + ", " + note)
		}
	}
	if err == nil {
		s.Progress.Done(sc.Name + " is measured")
	}
	return err
}
