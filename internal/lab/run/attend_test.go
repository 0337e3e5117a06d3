package run

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
)

// hook is progress that is asked before each block.
type hook struct {
	quiet
	update func(text string)
}

func (h hook) Update(text string) { h.update(text) }

// A plane that breaks while it is idle has broken as well, and it is that plane which is named.
func TestAProcessThatEndsOutsideOfItsPlanesBlocksIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		round, order string // when it is hit: before a block, or in one
		within       string // the plane under load, empty for between two
		last         bool   // no block of it follows
		want         string
	}{
		"between two blocks":       {round: "round 2", want: "a, lateen: failed in 1 of 3 blocks: a process ended between two blocks: app default/echo/echo"},
		"in the block of another":  {round: "round 2", within: "none", want: "a, lateen: failed in 1 of 3 blocks: a process ended while none was measured: app default/echo/echo"},
		"in the last one of all":   {round: "round 3", within: "none-2", last: true, want: "lateen: a process ended while none-2 was measured: app default/echo/echo"},
		"in a block of the second": {round: "round 1", within: "none-2", want: "a, lateen: failed in 1 of 3 blocks: a process ended while none-2 was measured: app default/echo/echo"},
	} {
		t.Run(name, func(t *testing.T) {
			w, stage, o := newWorld(t, oneCell(""))
			o.Rounds = 3
			o.ABBA = true // none, none-2, lateen, and back
			pids, place := map[string]int{}, ""
			mk := stage.Make
			stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
				p, err := mk(s)
				return noting{p, func(pid int) { pids[s.Name] = pid }}, err
			}
			var once sync.Once
			hit := func() {
				once.Do(func() {
					if err := syscall.Kill(pids["lateen"], syscall.SIGKILL); err != nil {
						t.Error(err)
					}
					until(t, "the end of a process", func() bool { return over(t, pids["lateen"]) })
				})
			}
			stage.Progress = hook{update: func(text string) {
				place = text
				if tt.within == "" && strings.Contains(text, tt.round) && strings.Contains(text, "lateen") {
					hit()
				}
			}}
			w.answer = func(plane string, n int) (string, error) {
				late := !tt.last || n == 9
				if strings.Contains(place, tt.round) && (plane == tt.within || tt.last) && late && tt.within != "" {
					hit()
				}
				return answered(1), nil
			}
			if tt.last {
				// So that the third round ends with none.
				o.Planes = []dataplanes.Spec{{Name: "lateen", Kind: "lateen"}, {Name: "none", Kind: "none"}}
			}
			doc, err := Run(context.Background(), stage, o)
			if err != nil {
				t.Fatal(err)
			}
			s := doc.Scenarios[0]
			want := tt.want
			if tt.last {
				want = strings.ReplaceAll(want, "none-2", "none")
			}
			if !slices.Contains(s.Failures, want) {
				t.Errorf("failures %q, want %q; the scenario ended with %q", s.Failures, want, s.Failed)
			}
			for _, f := range s.Failures {
				if strings.Contains(f, ", none") && !strings.Contains(f, "lateen") {
					t.Errorf("another plane is blamed: %q", f)
				}
			}
			if !tt.last {
				for _, v := range s.Cells[0].Verdicts {
					if v.Plane == "lateen" && v.Judgement != results.Failed {
						t.Errorf("verdict %+v", v)
					}
				}
			}
		})
	}
}

// A processor that comes or goes spoils a block, and no more.
func TestAProcessorThatComesSpoilsABlock(t *testing.T) {
	w, stage, o := newWorld(t, oneCell(""))
	b, n := newBooks(t), 0
	mk := stage.Make
	stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
		p, err := mk(s)
		return noting{p, b.enter}, err
	}
	stage.Account = procstat.Host()
	stage.Account.Proc = b.dir
	stage.Account.Now = b.now
	w.answer = func(string, int) (string, error) {
		if n++; n == 2 {
			b.processors = 2
		}
		b.pass(0)
		return answered(1), nil
	}
	doc, err := Run(context.Background(), stage, o)
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Scenarios[0]
	if s.Failed != "" || len(s.Cells[0].Blocks) != 19 {
		t.Fatalf("%d blocks, the scenario ended with %q", len(s.Cells[0].Blocks), s.Failed)
	}
	for i, block := range s.Cells[0].Blocks {
		if bad := strings.Contains(strings.Join(block.Rejected, ""), "1 before and 2 after"); bad != (i == 1) {
			t.Errorf("block %d: rejected %q", i, block.Rejected)
		}
	}
}
