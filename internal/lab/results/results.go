// Package results is what a run of the lab leaves behind: the one document (results.json) that every table, page and
// comparison is made from. It holds types, units and the rules for reading and writing them; it measures nothing and
// judges nothing.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Format names the layout of the document. A change that old readers would misread gets a new one.
const Format = "lateen-lab/1"

// Results is one run of the lab.
type Results struct {
	Format string `json:"format"`
	// Name is what the run was called: the first scenario's name unless given.
	Name string `json:"name"`
	// Command is the command line that repeats the run.
	Command []string  `json:"command"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Interrupted is set when a signal ended the run early; what was measured until then is complete block by block.
	Interrupted bool    `json:"interrupted,omitempty"`
	Machine     Machine `json:"machine"`
	// AddedLatencyMS is what every round trip between nodes was made to last longer, in ms.
	AddedLatencyMS float64   `json:"added_latency_ms,omitempty"`
	Planes         []Plane   `json:"planes"`
	Gates          Gates     `json:"gates"`
	Scenarios      []Outcome `json:"scenarios"`
	// Remarks are what a reader of the document has found out about it; they are not part of it.
	Remarks []string `json:"-"`
}

// Machine is where the numbers come from.
type Machine struct {
	Kernel            string `json:"kernel"`
	CPU               string `json:"cpu"`
	Cores             int    `json:"cores"`
	MemoryMiB         int    `json:"memory_mib"`
	CongestionControl string `json:"congestion_control"`
	// Accounting says where CPU time comes from: cgroup1, cgroup2 or schedstat.
	Accounting string `json:"accounting"`
	// ExactSplit tells that the kernel measures how CPU time is split into user and system, and does not guess it from its ticks.
	ExactSplit bool `json:"exact_split,omitempty"`
	// Counters is false where the processor offers no hardware counters.
	Counters bool `json:"counters"`
	// Lateen is the version of the program, with its commit where it is known.
	Lateen string `json:"lateen"`
}

// Kinds of data planes.
const (
	KindNone     = "none"
	KindLateen   = "lateen"
	KindZtunnel  = "ztunnel"
	KindEnvoy    = "envoy"
	KindLinkerd  = "linkerd2-proxy"
	KindCilium   = "cilium"
	KindWaypoint = "waypoint"
	// KindEnvoyWaypoint is lateen's node proxies with a stock Envoy as the waypoint.
	KindEnvoyWaypoint = "envoy-waypoint"
	KindUnderTest     = "url" // no plane of ours: a URL that was given
)

// Plane is one data plane that was compared.
type Plane struct {
	// Name is unique in a run: the kind, or the kind with a suffix where one kind takes part twice ("lateen-2", the A/A
	// witness).
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	// Settings are the plane's own that differ from its defaults, such as workers.
	Settings map[string]string `json:"settings,omitempty"`
	// NotRun is why the plane could not take part; it has no blocks then.
	NotRun string `json:"not_run,omitempty"`
}

// SettingListeners is the setting that tells how an Envoy in the waypoint's place takes requests, by one of the values below.
const (
	SettingListeners = "listeners"
	ThreeListeners   = "three, chained"
	OneListener      = "one, behind the node proxy, by the PROXY protocol"
)

// MostOfLimit is how many times a limit of OtherCPU, Steal and Lateness a block may be disturbed where its round is as well.
const MostOfLimit = 5

// Gates are the limits, fixed before the run, beyond which a block is rejected for what its environment did. A result
// never rejects a block. OtherCPU, Steal and Lateness are limits to what disturbs a block more than the others of its round, for
// ratios are taken within a round; a block is rejected for MostOfLimit times the limit whatever disturbed the others.
type Gates struct {
	// OtherCPU is the largest share of the machine (0 to 1) that processes outside the experiment may use.
	OtherCPU float64 `json:"other_cpu"`
	// Steal is the largest share of CPU time (0 to 1) that the hypervisor may take.
	Steal float64 `json:"steal"`
	// Lateness is the largest P99 of the generator's own lateness in milliseconds: the same for every plane, however slow.
	Lateness float64 `json:"lateness_ms"`
	// Achieved is the least share of the due requests that a generator at its own limit may have begun in time. Without such a
	// limit a lower share is the plane's doing, and a result.
	Achieved float64 `json:"achieved"`
}

// DefaultGates are those of an unpinned two-core machine.
var DefaultGates = Gates{OtherCPU: 0.10, Steal: 0.01, Lateness: 5, Achieved: 0.99}

// Outcome is what became of one scenario.
type Outcome struct {
	Scenario string `json:"scenario"`
	Title    string `json:"title"`
	// Answers names the published tables that the scenario stands beside (identifiers of package published).
	Answers []string `json:"answers,omitempty"`
	// NotValid says what about the scenario does not hold on one machine.
	NotValid []string `json:"not_valid,omitempty"`
	Cells    []Cell   `json:"cells"`
	// Failed is why the scenario ended early; its cells hold what was measured until then.
	Failed string `json:"failed,omitempty"`
	// Failures are what planes failed at, in words: that they could not be started, crashes, silence, failed requests, a rate that
	// was not reached. Blocks that were rejected are looked at as well.
	Failures []string `json:"failures,omitempty"`
	// Notes are findings that were counted, in words, such as reads per request.
	Notes []string `json:"notes,omitempty"`
	// Facts are numbers that belong to no block, such as seconds to the first encrypted request.
	Facts []Fact `json:"facts,omitempty"`
}

// Fact is a single number of a plane.
type Fact struct {
	Plane string  `json:"plane"`
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`
	// Group is the setting that the number belongs to, where a scenario has several: facts of one name stand side by side.
	Group string `json:"group,omitempty"`
	// Target is the most that the design allows; 0 where it says nothing.
	Target float64 `json:"target,omitempty"`
}

// Cell is one setting of a scenario: all planes were measured under it in turn.
type Cell struct {
	// Name is unique in the scenario, short enough for a table's row: "16 connections".
	Name string `json:"name"`
	// Params are what differs between the scenario's cells, for axes of plots: {"connections": "16"}.
	Params map[string]string `json:"params,omitempty"`
	Load   Load              `json:"load"`
	// Untimed cells were run under strace: what was counted holds, times and CPU do not, and there are none.
	Untimed bool    `json:"untimed,omitempty"`
	Blocks  []Block `json:"blocks"`
	// Verdicts compare the planes; they are computed from Blocks and can be computed again.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// Load is what the generator was asked to do.
type Load struct {
	URL         string  `json:"url"`
	Protocol    string  `json:"protocol"` // http/1.1, h2c, h2, grpc, tcp
	QPS         float64 `json:"qps"`      // 0: closed loop
	Connections int     `json:"connections"`
	Keepalive   bool    `json:"keepalive"`
	Arrivals    string  `json:"arrivals"` // uniform, poisson, jitter
	Seconds     float64 `json:"seconds"`
	Warmup      float64 `json:"warmup_s"`
	Command     string  `json:"command"` // the generator's command line
}

// Block is one plane under one load for one stretch of time: the unit of analysis.
type Block struct {
	Plane string `json:"plane"`
	// Round counts from 1; the blocks of one round of a cell are pairs.
	Round int `json:"round"`
	// Order is the place in time within the scenario, from 0.
	Order   int       `json:"order"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Rejected lists the gates that the block failed, each with its value; empty for a block that counts.
	Rejected []string `json:"rejected,omitempty"`
	// Metrics are the block's numbers by the names below. A percentile with fewer than 100 samples beyond it is absent.
	Metrics map[string]float64 `json:"metrics"`
	// Failed is what broke in the block on the plane's side: a process that ended, no answer at all. It is a result, and is told
	// as one whether the block counts or was rejected.
	Failed []string `json:"failed,omitempty"`
	// Split is what the roles used in user space and in the kernel, in seconds, as the kernel counted it: of one block alone it means
	// something on a machine with ExactSplit only.
	Split map[string][2]float64 `json:"cpu_split_s,omitempty"`
	// Histogram is the response time in nanoseconds: HdrHistogram V2, base64.
	Histogram string `json:"histogram,omitempty"`
	// Errors are failed requests by kind.
	Errors map[string]uint64 `json:"errors,omitempty"`
	// Environment is what the gates looked at: other_cpu, steal, psi_some, begun, kept and generator_busy (shares), lateness_ms.
	// There is no other_cpu where a process ended whose use nobody in the experiment has taken over.
	Environment map[string]float64 `json:"environment,omitempty"`
}

// Keys of a block's environment that tell shares of the requests that were due in it.
const (
	// EnvBegun is how many were begun at all, until the generator gave up on them some time after the block: the others are in no
	// percentile.
	EnvBegun = "begun"
	// EnvKept is how many were begun while others were due: below 1 the rate was not kept.
	EnvKept = "kept"
)

// Names of metrics. Response times count from a request's intended start, in milliseconds; service times from when it
// was sent.
const (
	ResponseAvg  = "response_avg_ms"
	ResponseP50  = "response_p50_ms"
	ResponseP75  = "response_p75_ms"
	ResponseP90  = "response_p90_ms"
	ResponseP99  = "response_p99_ms"
	ResponseP999 = "response_p99_9_ms"
	ServiceP50   = "service_p50_ms"
	ServiceP90   = "service_p90_ms"
	ServiceP99   = "service_p99_ms"
	ConnectP50   = "connect_p50_ms"
	ConnectP99   = "connect_p99_ms"
	QPS          = "qps"
	Requests     = "requests"
	FailedShare  = "failed_share"
	MBPerSecond  = "mb_per_s"
)

// Roles of processes, for metrics by role.
const (
	RoleGenerator = "generator"
	RoleApp       = "app"
	RoleProxies   = "proxies" // every proxy on the path together
	// RoleWaypoint is the waypoint alone, which is one of the proxies on its plane's path and is counted in RoleProxies as well.
	RoleWaypoint = "waypoint"
	RoleAgent    = "agent"
	RoleControl  = "control"
	// RoleAll is generator, app and proxies together: all that a request costs on its path, to be compared with no mesh. It
	// is no further role beside them.
	RoleAll = "all"
)

// CPUPerRequest names a role's CPU time per request in µs; part is "total", "user" or "system". A block has the latter two on a
// machine with ExactSplit only.
func CPUPerRequest(role, part string) string { return cpuPerRequest + role + "." + part }

const cpuPerRequest = "cpu_us_per_request."

// NoiseOf names the metric whose noise stands for a metric's own where planes that are alike have none of it: without a mesh no
// proxy uses the processor, and what the same clocks say of the whole path wavers as much.
func NoiseOf(metric string) string {
	if strings.HasPrefix(metric, cpuPerRequest) {
		return CPUPerRequest(RoleAll, "total")
	}
	return metric
}

// Calls of SyscallsPerRequest that are sums: of all, and of those that moved bytes.
const (
	CallsAll    = "all"
	CallsReads  = "reads"  // read, recvfrom and their like that did not fail
	CallsWrites = "writes" // write, sendto and their like that did not fail
)

// SyscallsPerRequest names a role's system calls per request; call is a sum above or a call's name.
func SyscallsPerRequest(role, call string) string { return "syscalls_per_request." + role + "." + call }

// SwitchesPerRequest names a role's voluntary context switches (sleeps) per request.
func SwitchesPerRequest(role string) string { return "switches_per_request." + role }

// DelayedACKsPerRequest names how often, per request, a kernel's TCP held an acknowledgement back until its timer ran out, in
// the network namespaces of a role's pods; the proxies' sockets in them count there.
func DelayedACKsPerRequest(role string) string { return "delayed_acks_per_request." + role }

// ManyDelayedACKs is from how many a request on they tell in its times: one request in five waits.
const ManyDelayedACKs = 0.2

// DelayedACKs adds up those of both ends, per request, where they were counted.
func DelayedACKs(get func(metric string) (float64, bool)) (sum float64, counted bool) {
	for _, role := range []string{RoleGenerator, RoleApp} {
		if v, ok := get(DelayedACKsPerRequest(role)); ok {
			sum, counted = sum+v, true
		}
	}
	return sum, counted
}

// HandshakesPerRequest is how many TLS handshakes the proxies completed, per request; absent where a plane does not say.
const HandshakesPerRequest = "handshakes_per_request"

// PSS names a role's proportional set size in MiB at the end of a block.
func PSS(role string) string { return "pss_mib." + role }

// Directions of connections through a proxy: those that its pods open, and those that others open to them.
const (
	Outbound = "outbound"
	Inbound  = "inbound"
)

// WorkerThreads names how many workers the proxy of a direction had.
func WorkerThreads(direction string) string { return "worker_threads." + direction }

// WorkerConnections names how many connections the workers of a direction's proxy had together in the middle of a block.
func WorkerConnections(direction string) string { return "worker_connections." + direction }

// WorkerImbalance names what the fullest of these workers had over their mean: 1 if all had as many.
func WorkerImbalance(direction string) string { return "worker_max_over_mean." + direction }

// WorkerChiSquare names Pearson's statistic of what each had against the mean; the degrees of freedom are one less than there
// are workers.
func WorkerChiSquare(direction string) string { return "worker_chi_square." + direction }

// BetterIsLower tells whether less of a metric is better.
func BetterIsLower(metric string) bool {
	switch metric {
	case QPS, Requests, MBPerSecond:
		return false
	}
	return true
}

// ByDifference tells whether planes are compared by differences of a metric and not by ratios: shares that are often zero.
func ByDifference(metric string) bool { return metric == FailedShare }

// Judgements of a metric.
const (
	Faster            = "faster"
	Slower            = "slower"
	Indistinguishable = "indistinguishable"
	TooFew            = "too few rounds" // fewer count than a judgement needs
	Failed            = "failed"         // one of the two broke: its numbers are of what it still did
	// Invalid is TooFew in documents of earlier versions.
	Invalid = "invalid"
)

// Unjudged tells whether a judgement says that there is none, for want of rounds.
func Unjudged(judgement string) bool { return judgement == TooFew || judgement == Invalid }

// Verdict compares one metric of one plane with the baseline's, by ratios of blocks of the same round.
type Verdict struct {
	Metric   string `json:"metric"`
	Baseline string `json:"baseline"`
	Plane    string `json:"plane"`
	// Pairs is how many rounds counted on both sides.
	Pairs int `json:"pairs"`
	// Ratio is plane over baseline: the median of the pairs', with a 95 % bootstrap interval over rounds. Where the metric is one
	// of ByDifference, all numbers here are differences, plane less baseline.
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// P is Wilcoxon's signed-rank test of the log-ratios, two-sided; Holm is P after Holm's correction over the cell's
	// metrics.
	P    float64 `json:"p"`
	Holm float64 `json:"holm"`
	// Floor is the half-width of the same interval between two planes that are alike (A/A), as a ratio: 1.03 means that
	// differences within 3 % are noise. 0 where it was not measured.
	Floor float64 `json:"floor,omitempty"`
	// Judgement is Faster, Slower, Indistinguishable, TooFew or Failed ("faster" means better, for CPU time and memory as well).
	Judgement string `json:"judgement"`
	// Counted and Needed are the rounds of a judgement that is TooFew: those that count, of the two planes or of those that give the
	// noise, and those that it needs.
	Counted int `json:"counted,omitempty"`
	Needed  int `json:"needed,omitempty"`
	// Why says in a few words what the judgement rests on.
	Why string `json:"why,omitempty"`
}

// Says is the judgement for people, in short: "faster", "too few rounds (2 of 7)".
func (v Verdict) Says() string {
	if v.Judgement == TooFew && v.Needed > 0 {
		return fmt.Sprintf("%s (%d of %d)", TooFew, v.Counted, v.Needed)
	}
	return v.Judgement
}

// SaysWhy is the judgement for people with what it rests on.
func (v Verdict) SaysWhy() string {
	if v.Why == "" {
		return v.Says()
	}
	return v.Says() + ": " + v.Why
}

// Counted tells whether a block counts.
func (b *Block) Counted() bool { return len(b.Rejected) == 0 }

// Write stores the document so that a reader never sees half of it.
func (r *Results) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(append(text, '\n')); err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Read loads a document, or the results.json of a folder.
func Read(path string) (*Results, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "results.json")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	defer f.Close()
	r, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// maxDocument bounds what Decode reads, in bytes.
const maxDocument = 256 << 20

// Decode reads a document.
func Decode(from io.Reader) (*Results, error) {
	var r Results
	if err := json.NewDecoder(io.LimitReader(from, maxDocument)).Decode(&r); err != nil {
		return nil, fmt.Errorf("not a results.json of the lab: %w", err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("format %q; this program reads %q: use the program that wrote it", r.Format, Format)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return &r, nil
}

// check refuses what later code would stumble over.
func (r *Results) check() error {
	planes := map[string]bool{}
	for _, p := range r.Planes {
		if p.Name == "" || planes[p.Name] {
			return fmt.Errorf("planes: %q is empty or stands twice", p.Name)
		}
		planes[p.Name] = true
	}
	for _, s := range r.Scenarios {
		cells := map[string]bool{}
		for _, c := range s.Cells {
			if strings.TrimSpace(c.Name) == "" || cells[c.Name] {
				return fmt.Errorf("scenario %s: cell %q is empty or stands twice", s.Scenario, c.Name)
			}
			cells[c.Name] = true
			for _, b := range c.Blocks {
				if !planes[b.Plane] {
					return fmt.Errorf("scenario %s, cell %s: a block of the unknown plane %q", s.Scenario, c.Name, b.Plane)
				}
			}
		}
	}
	return nil
}
