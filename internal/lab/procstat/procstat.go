// Package procstat reads what processes and the machine have used so far: CPU time, sleeps, memory, steal and pressure, from
// the kernel's own books. It knows nothing of planes and loads: whoever measures reads twice and subtracts.
package procstat

import "time"

// Usage is what one process and all that descend from it have used so far.
type Usage struct {
	// CPU is time on a processor as the scheduler counted it, exact. Threads and children that have ended are in it; children
	// that were waited for to the kernel's tick.
	CPU time.Duration
	// User and System are how the kernel splits it, to 10 ms; what that is worth says ExactSplit.
	User, System time.Duration
	// Voluntary switches are sleeps, Involuntary ones preemptions. Those of threads that have ended are lost.
	Voluntary, Involuntary uint64
	// Processes and Threads are how many there are now.
	Processes, Threads int
}

// Sub is what was used since an earlier reading; nothing comes out below zero.
func (u Usage) Sub(earlier Usage) Usage {
	return Usage{
		CPU: max(0, u.CPU-earlier.CPU), User: max(0, u.User-earlier.User), System: max(0, u.System-earlier.System),
		Voluntary: below(u.Voluntary, earlier.Voluntary), Involuntary: below(u.Involuntary, earlier.Involuntary),
		Processes: u.Processes, Threads: u.Threads,
	}
}

// Add adds up the usage of two processes.
func (u Usage) Add(other Usage) Usage {
	return Usage{
		CPU: u.CPU + other.CPU, User: u.User + other.User, System: u.System + other.System,
		Voluntary: u.Voluntary + other.Voluntary, Involuntary: u.Involuntary + other.Involuntary,
		Processes: u.Processes + other.Processes, Threads: u.Threads + other.Threads,
	}
}

func below(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}

// Machine is what the whole machine has done so far.
type Machine struct {
	At time.Time
	// Processors is how many are at work.
	Processors int
	// Steal is what the hypervisor gave to others and Idle what nobody used, of all processors together.
	Steal, Idle time.Duration
	// Interrupts is what they took, on kernels that keep it out of the processes' clocks; 0 on others.
	Interrupts time.Duration
	// Stalled is how long some task has waited for a processor (PSI); not known where Pressure is false.
	Stalled  time.Duration
	Pressure bool
}
