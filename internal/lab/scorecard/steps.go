package scorecard

import (
	"context"
	"fmt"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// join brings the application into the mesh.
func (s *session) join(ctx context.Context) error {
	before, err := s.processes(ctx)
	if err != nil {
		return err
	}
	s.Progress.Start("bring the application into the mesh")
	var first, all time.Duration
	up := s.card.Rows[len(s.card.Rows)-1].Value
	err = s.under(ctx, AreaJoining, "it joined", s.Load, func(ctx context.Context) error {
		began := time.Now()
		ambient := "ambient"
		if err := s.label(ctx, &ambient); err != nil {
			return err
		}
		if err := s.until(ctx, "an encrypted request", func(ctx context.Context) (bool, error) {
			n, err := s.encrypted(ctx)
			return n > 0, err
		}); err != nil {
			return err
		}
		first = time.Since(began)
		if err := s.wait(ctx, "every pod to be in the mesh", func(st api.Status) bool { return captured(st) && known(st) }); err != nil {
			return err
		}
		all = time.Since(began)
		return nil
	})
	if err != nil {
		return err
	}
	commands := []string{commandUp, commandLabel}
	s.add(Row{Area: AreaDeployment, Criterion: "commands to the first encrypted request", Value: float64(len(commands)), Unit: "commands", Commands: commands})
	s.add(Row{Area: AreaDeployment, Criterion: "until the first encrypted request", Value: up + first.Seconds(), Unit: "s", Note: "both commands, without the time to type them"})
	s.add(Row{Area: AreaJoining, Criterion: "from the label to the first encrypted request", Value: first.Seconds(), Unit: "s"})
	s.add(Row{Area: AreaJoining, Criterion: "from the label until every pod is in the mesh", Value: all.Seconds(), Unit: "s"})
	return s.restarts(ctx, AreaJoining, "joining", before)
}

// drain is how long connections may stay with a proxy that was replaced.
const drain = time.Minute

// upgrade replaces the node proxies, one after the other.
func (s *session) upgrade(ctx context.Context) error {
	before, err := s.processes(ctx)
	if err != nil {
		return err
	}
	st, err := s.client.Status(ctx)
	if err != nil {
		return err
	}
	s.Progress.Start("replace the node proxies")
	var took time.Duration
	var commands []string
	if err := s.under(ctx, AreaMaintenance, "node proxies were upgraded", s.Load, func(ctx context.Context) error {
		began := time.Now()
		for _, n := range st.Nodes {
			commands = append(commands, "lateen proxy replace "+n.Name)
			if err := s.client.ReplaceProxy(ctx, n.Name, api.ReplaceRequest{DrainSeconds: drain.Seconds()}, func(api.Event) {}); err != nil {
				return err
			}
		}
		took = time.Since(began)
		return s.wait(ctx, "the new proxies", func(now api.Status) bool {
			return known(now) && every(now.Nodes, func(n api.NodeState) bool { return n.Proxy.PID != proxyOf(st, n.Name).PID })
		})
	}); err != nil {
		return err
	}
	s.add(Row{Area: AreaMaintenance, Criterion: "all node proxies upgraded", Value: took.Seconds(), Unit: "s", Commands: commands})
	return s.restarts(ctx, AreaMaintenance, "the upgrade", before)
}

func proxyOf(st api.Status, node string) api.Process {
	for _, n := range st.Nodes {
		if n.Name == node {
			return n.Proxy.Process
		}
	}
	return api.Process{}
}

// failures ends parts of the mesh and watches it mend.
func (s *session) failures(ctx context.Context) error {
	for _, part := range []struct {
		name  string
		of    func(api.Status) api.Process
		ready func(api.Status) bool
	}{
		{"the server's node proxy was killed", func(st api.Status) api.Process { return st.Nodes[len(st.Nodes)-1].Proxy.Process }, known},
		{"the control plane was killed", func(st api.Status) api.Process { return st.Control.Process }, known},
		{"the server's node agent was killed", func(st api.Status) api.Process { return st.Nodes[len(st.Nodes)-1].Agent.Process },
			func(st api.Status) bool {
				a := st.Nodes[len(st.Nodes)-1].Agent
				return a.Ready && a.ProxyConnected && captured(st)
			}},
	} {
		s.Progress.Start("wait until " + part.name)
		var took time.Duration
		if err := s.under(ctx, AreaFailure, part.name, s.Load, func(ctx context.Context) error {
			st, err := s.client.Status(ctx)
			if err != nil {
				return err
			}
			if len(st.Nodes) == 0 {
				return fmt.Errorf("the mesh has no node")
			}
			victim := part.of(st)
			began := time.Now()
			if err := kill(victim); err != nil {
				return err
			}
			if err := s.wait(ctx, "it to be back", func(st api.Status) bool {
				now := part.of(st)
				return now.PID != 0 && now.PID != victim.PID && part.ready(st)
			}); err != nil {
				return err
			}
			took = time.Since(began)
			return nil
		}); err != nil {
			return err
		}
		s.add(Row{Area: AreaFailure, Criterion: "until all is well again after " + part.name, Value: took.Seconds(), Unit: "s", Note: "nobody has to do anything"})
	}
	return nil
}

// leave takes the application out of the mesh.
func (s *session) leave(ctx context.Context) error {
	before, err := s.processes(ctx)
	if err != nil {
		return err
	}
	s.Progress.Start("take the application out of the mesh")
	var took time.Duration
	if err := s.under(ctx, AreaLeaving, "it left", s.Load, func(ctx context.Context) error {
		began := time.Now()
		if err := s.label(ctx, nil); err != nil {
			return err
		}
		if err := s.wait(ctx, "every pod to be out of the mesh", func(st api.Status) bool {
			return every(application(st), func(p api.PodState) bool { return !p.Redirection })
		}); err != nil {
			return err
		}
		took = time.Since(began)
		return nil
	}); err != nil {
		return err
	}
	s.add(Row{Area: AreaLeaving, Criterion: "until every pod is out of the mesh", Value: took.Seconds(), Unit: "s", Commands: []string{commandLabel[:len(commandLabel)-len("=ambient")] + "-"}})
	return s.restarts(ctx, AreaLeaving, "leaving", before)
}

// rotate replaces the root while certificates live seconds.
func (s *session) rotate(ctx context.Context) error {
	s.Progress.Start("bring the application into the mesh, with certificates that live seconds")
	ambient := "ambient"
	if err := s.label(ctx, &ambient); err != nil {
		return err
	}
	if err := s.wait(ctx, "every pod to be in the mesh", func(st api.Status) bool { return captured(st) && known(st) }); err != nil {
		return err
	}
	before, err := s.processes(ctx)
	if err != nil {
		return err
	}
	s.Progress.Start("replace the root certificate")
	var took time.Duration
	if err := s.under(ctx, AreaMaintenance, "certificates were renewed and the root was replaced", max(s.Load, rotationLoad), func(ctx context.Context) error {
		was, err := s.client.CA(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := s.client.RotateCA(ctx); err != nil {
			return err
		}
		if err := s.until(ctx, "the new root to be trusted alone", func(ctx context.Context) (bool, error) {
			now, err := s.client.CA(ctx)
			return err == nil && now.Signing != was.Signing && len(now.Trusted) == 1 && now.Stage == api.CASteady, err
		}); err != nil {
			return err
		}
		took = time.Since(began)
		return nil
	}); err != nil {
		return err
	}
	s.add(Row{Area: AreaMaintenance, Criterion: "the root replaced everywhere", Value: took.Seconds(), Unit: "s", Commands: []string{"lateen ca rotate"},
		Note: fmt.Sprintf("with workload certificates of %s; each of the stages waits until those from before it are gone", shortTTL)})
	return s.restarts(ctx, AreaMaintenance, "the new root", before)
}
