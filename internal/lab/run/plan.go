package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
)

// A run's duration is estimated from its plan: every step that it will take, with what such a step took on a machine of two
// processors. What steps of this run really took corrects the rest.
const (
	timeOfStart    = 2 * time.Second        // a mesh, its pods, and their way into it
	timeOfEnd      = 4 * time.Second        // all meshes of a scenario, which end together
	timeOfReading  = 100 * time.Millisecond // the books before and after a block
	timeOfScale    = 2 * time.Second        // deployments of one plane
	timeOfPolicies = 3 * time.Second        // on one plane
	timeOfReturn   = 2 * time.Second        // of processes that a cell kills
	timeOfTracers  = 700 * time.Millisecond // strace attaches and lets go
	timeOfControl  = 60 * time.Second       // a control plane and its proxies come up
)

// stepKind is what happens in a step.
type stepKind int

const (
	stepStart stepKind = iota
	stepPrepare
	stepBlock
	stepCount // of system calls, in a block of its own
	stepControl
	stepEnd
	stepKinds // how many kinds there are
)

// step is a part of a run that is still to be taken.
type step struct {
	kind  stepKind
	takes time.Duration
}

func total(steps []step) (sum time.Duration) {
	for _, s := range steps {
		sum += s.takes
	}
	return sum
}

// measures are the times of a scenario's blocks in seconds, as the options have them.
func (o Options) measures(sc *scenario.Scenario) (seconds, warmup float64) {
	seconds, warmup = sc.Seconds, sc.Warmup
	if o.Seconds >= 0 {
		seconds = o.Seconds
	}
	if o.Warmup >= 0 {
		warmup = o.Warmup
	}
	return seconds, warmup
}

func (o Options) rounds(sc *scenario.Scenario) int {
	if o.Rounds > 0 {
		return o.Rounds
	}
	return sc.Rounds
}

// given says that load goes to URLs that were given, where nothing is the lab's to start.
func (o Options) given() bool {
	return len(o.Planes) > 0 && o.Planes[0].Kind == results.KindUnderTest
}

// groups are the cells that are measured in turn: those that change the services are measured one after the other.
func groups(cells []scenario.Cell) (list [][]int) {
	for i, c := range cells {
		if len(list) == 0 || c.Policies != cells[i-1].Policies || c.RequestPolicies != cells[i-1].RequestPolicies || !sameScale(c.Scale, cells[i-1].Scale) {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], i)
	}
	return list
}

// traces tells whether system calls are counted: where the scenario asks for it and this machine has what counts them.
func (o Options) traces(sc *scenario.Scenario, lookPath func(string) (string, error)) bool {
	if !sc.Syscalls || o.given() {
		return false
	}
	_, err := lookPath("strace")
	return err == nil
}

// steps are those of a scenario from the first plane that is started on, with so many planes and with these cells.
func (o Options) steps(sc *scenario.Scenario, cells []scenario.Cell, planes int, traces bool) []step {
	seconds, _ := o.measures(sc)
	if sc.Control != nil {
		each := sc.Control.Rest + float64(len(sc.Control.Rates))*seconds
		return []step{{stepControl, timeOfControl + span(each)}}
	}
	var list []step
	if !o.given() {
		for range planes {
			list = append(list, step{stepStart, timeOfStart})
		}
	}
	for _, group := range groups(cells) {
		list = append(list, step{stepPrepare, time.Duration(planes) * preparation(cells[group[0]])})
		for range o.rounds(sc) {
			list = append(list, o.round(sc, cells, group, planes)...)
		}
	}
	if traces {
		for range planes * len(cells) {
			list = append(list, step{stepCount, span(tracedSeconds) + timeOfTracers})
		}
	}
	if !o.given() {
		list = append(list, step{stepEnd, timeOfEnd})
	}
	return list
}

// round is one round of a group's cells.
func (o Options) round(sc *scenario.Scenario, cells []scenario.Cell, group []int, planes int) (list []step) {
	seconds, warmup := o.measures(sc)
	for _, i := range group {
		takes := span(seconds+warmup) + timeOfReading
		if cells[i].Beside != nil {
			takes += ahead
		}
		if cells[i].Kill != nil {
			takes += timeOfReturn
		}
		for range planes {
			list = append(list, step{stepBlock, takes})
		}
	}
	return list
}

// preparation is how long it takes to bring one plane's services into a cell's state.
func preparation(c scenario.Cell) (takes time.Duration) {
	if len(c.Scale) > 0 {
		takes += timeOfScale
	}
	if c.Policies > 0 || c.RequestPolicies != (scenario.RequestPolicies{}) {
		takes += timeOfPolicies
	}
	return takes
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// Plan is what a run will do, as far as it can be said before.
type Plan struct {
	Blocks int
	Takes  time.Duration
	// Short are the scenarios whose rounds are too few for a verdict.
	Short []Shortage
}

// Shortage is a scenario with too few rounds for a verdict, whatever they measure.
type Shortage struct {
	Scenario       string
	Rounds, Needed int
	// Takes is how long the scenario would take with as many as are needed.
	Takes time.Duration
}

// PlanOf plans a run. lookPath finds a program, as exec.LookPath does.
func PlanOf(o Options, lookPath func(string) (string, error)) (p Plan) {
	for _, sc := range o.Scenarios {
		_, cells, _ := o.equipped(sc, lookPath)
		planes, traces := len(o.specs(sc)), o.traces(sc, lookPath)
		steps := o.steps(sc, cells, planes, traces)
		p.Takes += total(steps)
		for _, s := range steps {
			if s.kind == stepBlock || s.kind == stepCount {
				p.Blocks++
			}
		}
		if needed := stats.MinPairs(len(sc.Metrics)); sc.Control == nil && o.rounds(sc) < needed {
			enough := o
			enough.Rounds = needed
			p.Short = append(p.Short, Shortage{sc.Name, o.rounds(sc), needed, total(enough.steps(sc, cells, planes, traces))})
		}
	}
	return p
}

// equipped leaves out what this machine lacks the programs for; notes say what.
func (o Options) equipped(sc *scenario.Scenario, lookPath func(string) (string, error)) (parts []string, cells []scenario.Cell, notes []string) {
	if o.given() {
		return sc.World, sc.Cells, nil
	}
	for _, part := range sc.World {
		var missing []string
		for _, program := range scenario.Needs(part) {
			if _, err := lookPath(program); err != nil {
				missing = append(missing, program)
			}
		}
		if len(missing) == 0 {
			parts = append(parts, part)
			continue
		}
		notes = append(notes, fmt.Sprintf("cells with %s were left out: this machine has no %s", part, strings.Join(missing, " and no ")))
	}
	for _, c := range sc.Cells {
		if c.Part == "" || slices.Contains(parts, c.Part) {
			cells = append(cells, c)
		}
	}
	return parts, cells, notes
}

// witness is the name of a plane's second self.
func witness(name string) string { return name + "-2" }

// witnesses are the planes that take part twice: those that the scenario names, if any of them takes part at all, else the first.
func witnesses(planes []dataplanes.Spec, sc *scenario.Scenario) []string {
	var twice []string
	for _, p := range planes {
		if slices.Contains(sc.Witnesses, p.Name) {
			twice = append(twice, p.Name)
		}
	}
	if len(twice) == 0 {
		twice = []string{planes[0].Name}
	}
	return twice
}

// variant is the name of a plane with other settings.
func variant(name string, v scenario.Variant) string { return name + "-" + v.Name }

// planes are those of the run, and behind them those that the scenario brings along. URLs that were given stand alone.
func (o Options) planes(sc *scenario.Scenario) []dataplanes.Spec {
	if o.given() {
		return o.Planes
	}
	list := slices.Clone(o.Planes)
	for _, kind := range sc.Planes {
		if !slices.ContainsFunc(list, func(p dataplanes.Spec) bool { return p.Kind == kind }) {
			list = append(list, dataplanes.Spec{Name: kind, Kind: kind})
		}
	}
	return list
}

// specs are the planes of a scenario: those of the run and its own, behind each witness its second self, and behind lateen its variants.
func (o Options) specs(sc *scenario.Scenario) []dataplanes.Spec {
	planes := o.planes(sc)
	twice := witnesses(planes, sc)
	var specs []dataplanes.Spec
	for _, p := range planes {
		specs = append(specs, p)
		if slices.Contains(twice, p.Name) {
			again := p
			again.Name = witness(p.Name)
			specs = append(specs, again)
		}
		if p.Kind == results.KindLateen {
			for _, v := range sc.Variants {
				other := p
				other.Name, other.ProxyEnv = variant(p.Name, v), v.ProxyEnv
				specs = append(specs, other)
			}
		}
	}
	return specs
}
