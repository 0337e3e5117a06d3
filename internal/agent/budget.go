package agent

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// keepBudget has the garbage collector work harder before the container's memory is used up: an agent that is killed for
// its memory captures nothing. What the user says with GOMEMLIMIT goes first.
func keepBudget(root string) {
	limit, ok := memoryLimit(root)
	if !ok || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	// The rest is what is no heap of Go's: stacks of the kernel, buffers of sockets, pages of files.
	debug.SetMemoryLimit(limit / 10 * 8)
}

// memoryLimit is that of the container, as cgroups of version 2 or 1 under root have it.
func memoryLimit(root string) (bytes int64, ok bool) {
	// Version 1 says "none" with a number of this size.
	const none = 1 << 60
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err == nil && n > 0 && n < none {
			return n, true
		}
	}
	return 0, false
}
