package run

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// virtual is a clock that goes on only when something says how long it takes.
type virtual struct {
	mu  sync.Mutex
	now time.Time
}

func (v *virtual) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

func (v *virtual) pass(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = v.now.Add(d)
}

// timedPlane takes as long as the plan says, or so many times as long.
type timedPlane struct {
	*fakePlane
	clock *virtual
	slow  float64
}

func (p timedPlane) Start(ctx context.Context, t dataplanes.Topology, f func(string)) (dataplanes.Bench, error) {
	b, err := p.fakePlane.Start(ctx, t, f)
	if err != nil {
		return nil, err
	}
	p.clock.pass(time.Duration(p.slow * float64(timeOfStart)))
	return timedBench{b.(*fakeBench), p}, nil
}

type timedBench struct {
	*fakeBench
	plane timedPlane
}

// durations are those that the generator is asked for.
var durations = regexp.MustCompile(`--(?:duration|warmup) (\d+)ms`)

func (b timedBench) Exec(ctx context.Context, target string, command []string, s api.Streams) (int, error) {
	for _, found := range durations.FindAllStringSubmatch(strings.Join(command, " "), -1) {
		var ms int
		if _, err := fmt.Sscan(found[1], &ms); err != nil {
			return 0, err
		}
		b.plane.clock.pass(time.Duration(ms) * time.Millisecond)
	}
	overhead := timeOfReading
	if strings.Contains(strings.Join(command, " "), fmt.Sprintf("--duration %dms", tracedSeconds*1000)) {
		overhead = timeOfTracers
	}
	b.plane.clock.pass(time.Duration(b.plane.slow * float64(overhead)))
	return b.fakeBench.Exec(ctx, target, command, s)
}

// Processes are of a role that is not traced: no tracer has to attach to them.
func (b timedBench) Processes(context.Context) ([]dataplanes.Process, error) {
	return []dataplanes.Process{{Role: results.RoleAgent, Name: "agent", PID: b.pid}}, nil
}

func (b timedBench) Scale(ctx context.Context, name string, n int) error {
	b.plane.clock.pass(time.Duration(b.plane.slow * float64(timeOfScale)))
	return b.fakeBench.Scale(ctx, name, n)
}

// Down of all planes happens together.
func (b timedBench) Down(ctx context.Context) error {
	if b.plane.spec.Name == "none" {
		b.plane.clock.pass(time.Duration(b.plane.slow * float64(timeOfEnd)))
	}
	return b.fakeBench.Down(ctx)
}

// told is what progress said was left, and when.
type told struct {
	quiet
	clock *virtual
	mu    sync.Mutex
	left  []time.Duration
	at    []time.Time
}

var leftText = regexp.MustCompile(`about (\S+) left`)

func (p *told) Start(text string) { p.Update(text) }

func (p *told) Update(text string) {
	if found := leftText.FindStringSubmatch(text); found != nil {
		d, err := time.ParseDuration(found[1])
		if err != nil {
			panic(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.left, p.at = append(p.left, d), append(p.at, p.clock.Now())
	}
}

const plannedScenario = `
title: t
does: d
world: [client, echo]
rounds: 2
seconds: 6
warmup: 2
syscalls: true
metrics: [response_p50_ms]
load: {url: "http://echo:8080/", connections: 4, qps: 1000}
cells: [{name: a}, {name: b, scale: {echo: 2}}, {name: c, scale: {echo: 2}}]
`

// The time that is left counts everything: meshes, preparations, blocks, system calls, and the scenarios that follow.
func TestTheTimeLeftIsThatOfTheWholePlan(t *testing.T) {
	for _, tt := range []struct {
		slow   float64
		strace bool
	}{{1, true}, {3, false}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			w, stage, o := newWorld(t, plannedScenario)
			second, err := scenario.Parse("second", []byte(plannedScenario))
			if err != nil {
				t.Fatal(err)
			}
			o.Scenarios = append(o.Scenarios, second)
			clock := &virtual{now: time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)}
			progress := &told{clock: clock}
			stage.Progress, stage.Now = progress, clock.Now
			stage.Sleep = func(context.Context, time.Duration) {}
			stage.Make = func(s dataplanes.Spec) (dataplanes.Plane, error) {
				return timedPlane{&fakePlane{t, w, s}, clock, tt.slow}, nil
			}
			stage.LookPath = func(name string) (string, error) {
				if name != "strace" || tt.strace {
					return "/bin/" + name, nil
				}
				return "", os.ErrNotExist
			}
			plan := PlanOf(o, stage.LookPath)
			began := clock.Now()
			doc, err := Run(t.Context(), stage, o)
			if err != nil {
				t.Fatal(err)
			}
			took := clock.Now().Sub(began)
			if off := math.Abs(plan.Takes.Seconds()/took.Seconds() - 1); off > 0.15 && tt.slow == 1 {
				t.Errorf("planned %s, took %s", plan.Takes, took)
			}
			blocks := 0
			for _, s := range doc.Scenarios {
				for _, c := range s.Cells {
					blocks += len(c.Blocks)
				}
			}
			if plan.Blocks != blocks {
				t.Errorf("planned %d blocks, measured %d", plan.Blocks, blocks)
			}
			if len(progress.left) < blocks {
				t.Fatalf("told %d times what is left, in %d blocks", len(progress.left), blocks)
			}
			for i, at := range progress.at {
				if tt.slow != 1 && at.Sub(began) < took/3 {
					continue // what steps take on this machine is still to be learnt
				}
				is := clock.Now().Sub(at)
				if off := (progress.left[i] - is).Abs(); off > max(is/6, 40*time.Second) {
					t.Errorf("after %s: told %s, took %s", at.Sub(began), progress.left[i], is)
				}
			}
		})
	}
}

// A run of two rounds measures for minutes and has no verdict: its user learns that before.
func TestTooFewRoundsAreSaidBeforeTheRun(t *testing.T) {
	_, stage, o := newWorld(t, plannedScenario)
	o.Rounds = 6
	if short := PlanOf(o, stage.LookPath).Short; len(short) != 0 {
		t.Errorf("six rounds are enough for one metric: %+v", short)
	}
	o.Rounds = 2
	plan := PlanOf(o, stage.LookPath)
	if len(plan.Short) != 1 {
		t.Fatalf("got %+v", plan.Short)
	}
	s := plan.Short[0]
	if s.Scenario != "small" || s.Rounds != 2 || s.Needed != 6 || s.Takes < 2*plan.Takes {
		t.Errorf("got %+v, of a plan of %s", s, plan.Takes)
	}
}

func TestATimeIsWrittenAsExactlyAsAnEstimateDeserves(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 4400 * time.Millisecond: "4s", 59600 * time.Millisecond: "1m", 83 * time.Second: "1m20s", 9*time.Minute + 58*time.Second: "10m",
		19*time.Minute + 23*time.Second: "19m", time.Hour: "1h0m", 100 * time.Minute: "1h40m",
	} {
		if got := Rough(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}
