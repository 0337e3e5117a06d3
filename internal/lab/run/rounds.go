package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// mostSilent is how many blocks in a row may pass without any answer.
const mostSilent = 3

// mostRepeats is how often a rejected block is measured again in its own round. A disturbance of a machine usually lasts longer than
// a block, so that more attempts at once would meet it again; a later round makes up for it.
const mostRepeats = 2

// measureGroup measures the cells of a group, round by round. Rejected blocks are measured again in their round. Rounds that still
// lack one are made up for, up to half as many again: what decides about that never looks at a result.
func (s *session) measureGroup(ctx context.Context, sc *scenario.Scenario, cells []scenario.Cell, group []int, out *results.Outcome) error {
	rounds, silent := s.options.rounds(sc), 0
	for round := 1; round <= rounds+rounds/2; round++ {
		if round > rounds && !slices.ContainsFunc(group, func(i int) bool { return s.counted(out.Cells[i]) < rounds }) {
			break
		}
		place := fmt.Sprintf("round %d of %d", round, rounds)
		if round > rounds {
			place = fmt.Sprintf("round %d, for rejected blocks", round)
			again := slices.DeleteFunc(slices.Clone(group), func(i int) bool { return s.counted(out.Cells[i]) >= rounds })
			s.plan.add(s.options.round(sc, cells, again, len(s.running)))
		}
		s.Progress.Start(fmt.Sprintf("%s: %s%s", sc.Name, place, s.left()))
		for _, i := range group {
			if round > rounds && s.counted(out.Cells[i]) >= rounds {
				continue
			}
			if err := s.measureRound(ctx, sc, cells[i], &out.Cells[i], place, i, round, &silent); err != nil {
				return err
			}
		}
		if err := s.write(); err != nil {
			return err
		}
		s.Progress.Done(fmt.Sprintf("%s: %s: %s", sc.Name, place, tally(out.Cells, group)))
	}
	return nil
}

// measureRound measures one cell on every plane, and the planes again whose blocks were rejected. index is the cell's place in the
// scenario, which the order of planes depends on; silent counts blocks in a row without an answer.
func (s *session) measureRound(ctx context.Context, sc *scenario.Scenario, cell scenario.Cell, c *results.Cell, place string, index, round int, silent *int) error {
	load := sc.Load.With(cell.Load)
	due := order(len(s.running), s.options.ABBA, s.options.Seed, index, round)
	for repeat := 0; len(due) > 0 && repeat <= mostRepeats; repeat++ {
		what := place
		if repeat > 0 {
			what += ", a rejected block again"
			for range due {
				s.plan.add(s.options.round(sc, []scenario.Cell{cell}, []int{0}, 1))
			}
		}
		for _, p := range due {
			on := s.running[p]
			s.Progress.Update(fmt.Sprintf("%s: %s: %s, %s%s", sc.Name, what, cell.Name, on.about.Name, s.left()))
			b, err := s.measure(ctx, on, cell, load, round)
			s.plan.done(stepBlock, s.Now())
			switch {
			case ctx.Err() != nil:
				return ctx.Err() // half a block counts for nothing
			case errors.Is(err, errNoAnswer):
				c.Blocks = append(c.Blocks, b)
				s.Progress.Warn(fmt.Sprintf("%s, %s, %s: %v", sc.Name, cell.Name, on.about.Name, err))
				if *silent++; *silent >= mostSilent {
					return fmt.Errorf("%d blocks in a row without an answer, the last one of %s: %w", *silent, on.about.Name, err)
				}
				continue
			case err != nil:
				if len(b.Failed) > 0 { // what broke the plane is a result
					c.Blocks = append(c.Blocks, b)
				}
				return err
			}
			*silent = 0
			c.Blocks = append(c.Blocks, b)
		}
		compareSurroundings(c.Blocks, round, s.options.Gates, cell)
		if due = slices.DeleteFunc(due, func(p int) bool { return !lacks(c.Blocks, s.running[p].about.Name, round) }); len(due) > len(s.running)/2 {
			return nil // what disturbs most of a round outlasts it
		}
	}
	return nil
}

// lacks tells whether a plane has no block in a round that counts, for what its surroundings did. What broke in a block is a result,
// and nothing that a repetition mends.
func lacks(blocks []results.Block, plane string, round int) bool {
	return !slices.ContainsFunc(blocks, func(b results.Block) bool {
		return b.Plane == plane && b.Round == round && (b.Counted() || len(b.Failed) > 0)
	})
}

// counted is in how many rounds of a cell the blocks of all planes count.
func (s *session) counted(c results.Cell) int {
	good := map[int]int{}
	n := 0
	for _, b := range c.Blocks {
		if b.Counted() {
			if good[b.Round]++; good[b.Round] == len(s.running) {
				n++
			}
		}
	}
	return n
}

// tally says how many blocks there are and how many were rejected.
func tally(cells []results.Cell, group []int) string {
	blocks, rejected := 0, 0
	for _, i := range group {
		for _, b := range cells[i].Blocks {
			blocks++
			if !b.Counted() {
				rejected++
			}
		}
	}
	if rejected == 0 {
		return plural(blocks, "block")
	}
	return fmt.Sprintf("%s, %d of them rejected", plural(blocks, "block"), rejected)
}
