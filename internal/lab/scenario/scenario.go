// Package scenario is the lab's experiments as short files: what each does, which published tables it stands beside, and what
// about it does not hold on one machine. It reads and checks them; package run carries them out.
package scenario

import (
	"fmt"
	"time"

	"lateen.dev/lateen/internal/lab/cpscale"
)

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
	// Workers is how many worker threads every plane's proxies run, and asks for what each of them has to carry; 0 leaves it to
	// the planes.
	Workers int `json:"workers,omitempty"`
	// Variants are further planes of lateen's, with other settings, each compared with lateen as it is.
	Variants []Variant `json:"variants,omitempty"`
	// Planes are further planes that take part beside those of the run, of the kinds that need no executable of their own: waypoint.
	Planes []string `json:"planes,omitempty"`
	// OnlyOK says that every request is to be answered with 200. One that is not voids its block, whose numbers would be of other work.
	OnlyOK bool `json:"onlyOK,omitempty"`
	// Alike are requests that each plane with a waypoint must answer, and answer alike, before anything is measured.
	Alike []Request `json:"alike,omitempty"`
	// Control makes it an experiment on the control plane alone, of this size: there is no world, no load and no other plane then, and
	// Seconds is how long changes are made at each rate.
	Control *cpscale.Size `json:"control,omitempty"`
}

// Request is one request with the answer that it must get.
type Request struct {
	Name    string            `json:"name"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	// Flags are further ones of lateen-load run.
	Flags []string `json:"flags,omitempty"`
	// Status is what the answer must have; any that is no error if it is 0.
	Status int `json:"status,omitempty"`
}

// Answer is what the load generator calls the answer that a request must get.
func (r Request) Answer() string {
	if r.Status == 0 {
		return "ok"
	}
	return fmt.Sprintf("status_%d", r.Status)
}

// Variant is lateen with other settings.
type Variant struct {
	// Name is the plane's, behind "lateen-".
	Name string `json:"name"`
	// ProxyEnv is environment of its proxies besides the scenario's.
	ProxyEnv []string `json:"proxyEnv"`
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
	// RequestPolicies are attached to the service echo first, on planes with a waypoint, which decides by them about each request.
	RequestPolicies RequestPolicies `json:"requestPolicies,omitzero"`
	// Beside runs a second load at the same time, which is not measured.
	Beside *Beside `json:"beside,omitempty"`
	// Kill ends the processes of a role this many seconds into the measured time.
	Kill *Kill `json:"kill,omitempty"`
	// Saturates says that the wanted rate may be out of reach of the services themselves: the gate on the achieved rate does
	// not apply, falling behind it is no failure, and response times are those of a queue.
	Saturates bool `json:"saturates,omitempty"`
}

// RequestPolicies are authorization policies about requests to the service echo.
type RequestPolicies struct {
	// Deny is how many refuse requests that nobody sends: none of them matches.
	Deny int `json:"deny,omitempty"`
	// Allow is how many admit requests; the last one by name admits the load, and no other does.
	Allow int `json:"allow,omitempty"`
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

// Changes says why a scenario needs services of the lab's own, which it changes or disturbs; empty if it only sends load.
func (s *Scenario) Changes() string {
	for _, c := range s.Cells {
		switch {
		case len(c.Scale) > 0:
			return "cell " + c.Name + " scales the services"
		case c.Policies > 0, c.RequestPolicies != (RequestPolicies{}):
			return "cell " + c.Name + " applies policies"
		case c.Beside != nil:
			return "cell " + c.Name + " has a second load from a pod of its own"
		case c.Kill != nil:
			return "cell " + c.Name + " ends processes"
		}
	}
	return ""
}
