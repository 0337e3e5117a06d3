// Package scenario is the lab's experiments as short files: what each does, which published tables it stands beside, and what
// about it does not hold on one machine. It reads and checks them; package run carries them out.
package scenario

import "time"

// Scenario is one file.
type Scenario struct {
	// Name is the file's name without its ending.
	Name  string `json:"name"`
	Title string `json:"title"`
	// Does says in a few sentences what is done and why.
	Does string `json:"does"`
	// Answers names published tables (identifiers of package published).
	Answers []string `json:"answers,omitempty"`
	// NotValid says what does not hold on one machine.
	NotValid []string `json:"notValid,omitempty"`
	// World names the services by parts: files of worlds/, or the sample "bookinfo". The part "client" is what load comes from.
	World []string `json:"world"`
	// Rounds is how often every cell is measured on every plane, Seconds how long each time after Warmup seconds.
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
	Warmup  float64 `json:"warmup"`
	// Metrics are what verdicts are about, declared beforehand (names of package results).
	Metrics []string `json:"metrics"`
	// Witnesses are planes that take part twice, so that two alike can be compared; the baseline if empty.
	Witnesses []string `json:"witnesses,omitempty"`
	// Load is what all cells have in common.
	Load  Load   `json:"load"`
	Cells []Cell `json:"cells"`
	// Syscalls counts system calls in untimed blocks of each cell.
	Syscalls bool `json:"syscalls,omitempty"`
	// ProxyEnv is environment of lateen's own proxies, as NAME=VALUE.
	ProxyEnv []string `json:"proxyEnv,omitempty"`
}

// Cell is one setting; what it leaves out of Load is the scenario's.
type Cell struct {
	Name   string            `json:"name"`
	Params map[string]string `json:"params,omitempty"`
	Load   Load              `json:"load,omitzero"`
	// Part is the part of the world that the cell needs beside the client; where its programs are missing the cell is left
	// out, and the report says so.
	Part string `json:"part,omitempty"`
	// Scale sets replicas of deployments before the cell is measured.
	Scale map[string]int `json:"scale,omitempty"`
	// Policies is how many authorization policies are applied first; the last one admits the load.
	Policies int `json:"policies,omitempty"`
	// Beside runs a second load at the same time, which is not measured.
	Beside *Beside `json:"beside,omitempty"`
	// Kill ends the processes of a role this many seconds into the measured time.
	Kill *Kill `json:"kill,omitempty"`
	// Saturates says that the wanted rate may be out of reach of the services themselves: the gate on the achieved rate does
	// not apply, and response times are those of a queue.
	Saturates bool `json:"saturates,omitempty"`
}

// Beside is a load that disturbs.
type Beside struct {
	From string `json:"from"` // the pod it starts from: deploy/loud
	Load Load   `json:"load"`
}

// Kill ends processes.
type Kill struct {
	Role  string  `json:"role"`
	After float64 `json:"after"` // seconds
}

// Load is a request to the load generator.
type Load struct {
	URL         string            `json:"url,omitempty"`
	QPS         *float64          `json:"qps,omitempty"` // 0: as fast as the answers come
	Connections int               `json:"connections,omitempty"`
	Keepalive   *bool             `json:"keepalive,omitempty"`
	Arrivals    string            `json:"arrivals,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	// Flags are further ones of lateen-load run.
	Flags []string `json:"flags,omitempty"`
}

// Block is how long a block takes, warm-up included.
func (s *Scenario) Block() time.Duration {
	return time.Duration((s.Seconds + s.Warmup) * float64(time.Second))
}
