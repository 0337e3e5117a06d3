package demo

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat: USER_HZ is 100 on every architecture that Linux has today.
const tick = 10 * time.Millisecond

// MachineBusy is the CPU time that all programs and interrupts of this machine have used since it started.
func MachineBusy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	return parseBusy(string(text))
}

// parseBusy adds up the first line of /proc/stat without idle, iowait and steal (proc_stat(5)); guest time is part of
// user time already.
func parseBusy(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, errors.New("read the machine's CPU time: the first line of /proc/stat is not as expected")
	}
	const user, nice, system, irq, softirq = 1, 2, 3, 6, 7
	var ticks uint64
	for _, i := range []int{user, nice, system, irq, softirq} {
		n, err := strconv.ParseUint(fields[i], 10, 48)
		if err != nil {
			return 0, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
