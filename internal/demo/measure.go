package demo

import (
	"context"
	"fmt"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func (s *session) measure(ctx context.Context) error {
	targets := s.targets()
	order := Order(s.options.Pairs)
	s.say("%s without and with the mesh in turn, %s per side and service after %s of warm-up, on new connections each time.",
		plural(s.options.Pairs, "round"), s.options.Block, s.options.Warmup)
	for i, mesh := range order {
		round := i/2 + 1
		side := "without"
		if mesh {
			side = "with"
		}
		s.Progress.Start(fmt.Sprintf("round %d of %d %s the mesh", round, s.options.Pairs, side))
		if s.enrolled != mesh {
			if err := s.setMesh(ctx, mesh); err != nil {
				return err
			}
		}
		for _, to := range targets {
			s.Progress.Update(fmt.Sprintf("round %d of %d %s the mesh: %d requests/s to %s", round, s.options.Pairs, side, to.qps, to.name))
			block, err := s.block(ctx, to, round, mesh)
			if err != nil {
				return err
			}
			s.results.Blocks = append(s.results.Blocks, block)
		}
		s.Progress.Done(fmt.Sprintf("round %d of %d %s the mesh", round, s.options.Pairs, side))
	}
	setting := Setting{Cores: s.Cores, BlockTime: s.options.Block.Seconds(), Rates: map[string]int{}}
	for _, to := range targets {
		comparison := Compare(to.name, s.results.Blocks)
		s.results.Comparisons = append(s.results.Comparisons, comparison)
		setting.Rates[to.name] = to.qps
		title := fmt.Sprintf("%s: %d requests/s over %d connections", to.name, to.qps, to.connections)
		s.say("")
		if err := WriteTable(s.Out, title, s.results.Blocks, comparison); err != nil {
			return err
		}
	}
	s.results.Paragraph = Paragraph(s.results.Comparisons, setting)
	s.title("What this shows")
	s.say("%s", wrap(s.results.Paragraph, 100))
	return nil
}

// block measures one target on one side.
func (s *session) block(ctx context.Context, to target, round int, mesh bool) (Block, error) {
	label := "none"
	if mesh {
		label = "mesh"
	}
	// The samples enclose the load alone: reading the proxies' metrics costs CPU time too.
	var before, after api.Usage
	var busy [2]time.Duration
	result, meshed, err := s.countMeshed(ctx, to, func(ctx context.Context) (result LoadResult, err error) {
		if before, err = s.Mesh.Usage(ctx); err != nil {
			return result, err
		}
		if busy[0], err = s.Busy(); err != nil {
			return result, err
		}
		if result, err = s.load(ctx, Load{
			URL: to.url, QPS: to.qps, Connections: to.connections,
			Duration: s.options.Block, Warmup: s.options.Warmup, Label: label,
		}); err != nil {
			return result, err
		}
		if busy[1], err = s.Busy(); err != nil {
			return result, err
		}
		after, err = s.Mesh.Usage(ctx)
		return result, err
	})
	if err != nil {
		return Block{}, err
	}
	b := Block{Target: to.name, Round: round, Mesh: mesh, Load: result, Meshed: meshed}
	if nanos, ok := proxyCPU(before, after); ok && result.Requests() > 0 {
		micros := float64(nanos) / 1e3 / float64(result.Requests())
		b.ProxyCPUMicros = &micros
	}
	b.OtherCPU = otherCPU(before, after, busy[1]-busy[0], result, s.Cores)
	b.judge()
	return b, nil
}

// otherCPU is the share of the machine that neither the mesh nor its pods nor the load generator used between two
// samples. Components that came or went in between make it unknown.
func otherCPU(before, after api.Usage, busy time.Duration, result LoadResult, cores int) *float64 {
	was := map[[2]string]api.ComponentUsage{}
	for _, c := range before.Components {
		was[[2]string{c.Kind, c.Name}] = c
	}
	own := result.GeneratorNanos()
	for _, c := range after.Components {
		b, ok := was[[2]string{c.Kind, c.Name}]
		if !ok || c.CPUNanos < b.CPUNanos {
			return nil
		}
		own += float64(c.CPUNanos - b.CPUNanos)
	}
	elapsed := after.Time.Sub(before.Time)
	if elapsed <= 0 || cores < 1 {
		return nil
	}
	// The kernel counts busy time in ticks of 10 ms, so that the difference may come out just below nothing.
	share := max(0, (float64(busy)-own)/(float64(elapsed)*float64(cores)))
	return &share
}

// proxyCPU is the CPU time that all node proxies together spent between two samples. It is not known if one of them
// restarted or went missing in between.
func proxyCPU(before, after api.Usage) (nanos uint64, known bool) {
	was := map[string]api.ComponentUsage{}
	for _, c := range before.Components {
		if c.Kind == "proxy" {
			was[c.Name] = c
		}
	}
	seen := 0
	for _, c := range after.Components {
		if c.Kind != "proxy" {
			continue
		}
		b, ok := was[c.Name]
		if !ok || b.Restarts != c.Restarts || b.PID != c.PID || c.CPUNanos < b.CPUNanos {
			return 0, false
		}
		nanos += c.CPUNanos - b.CPUNanos
		seen++
	}
	return nanos, seen > 0 && seen == len(was)
}
