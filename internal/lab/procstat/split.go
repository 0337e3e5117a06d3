package procstat

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ExactSplit says whether the kernel measures how a process's time is divided into user and system. Most kernels only look at each
// tick which of the two runs, and scale what they saw to the exact sum: work that comes in step with the ticks is then seen at each
// of them or at none, and the split of a short time is chance. The sum agrees with the CPU clock on both kinds, so that only the
// kernel's configuration tells them apart; where it cannot be read, the answer is no.
func (r Reader) ExactSplit() bool {
	online := r.text(r.Sys, "devices/system/cpu/online")
	return measuresSplit(r.configuration(), r.text(r.Sys, "devices/system/cpu/nohz_full"), online)
}

// text is a file's below a folder that may be unknown.
func (r Reader) text(folder, name string) string {
	if folder == "" {
		return ""
	}
	text, _ := os.ReadFile(filepath.Join(folder, name))
	return strings.TrimSpace(string(text))
}

// maxConfiguration bounds what is read of a kernel's configuration, in bytes.
const maxConfiguration = 4 << 20

// configuration is the kernel's, from itself or else from where distributions put it.
func (r Reader) configuration() string {
	if f, err := os.Open(filepath.Join(r.Proc, "config.gz")); err == nil {
		defer f.Close()
		if z, err := gzip.NewReader(f); err == nil {
			if text, err := io.ReadAll(io.LimitReader(z, maxConfiguration)); err == nil {
				return string(text)
			}
		}
	}
	return r.text(r.Boot, "config-"+r.text(r.Proc, "sys/kernel/osrelease"))
}

// measuresSplit reads a kernel's configuration. What is built in for any architecture (GEN) is at work on processors only whose way
// into the kernel and out of it is tracked: all of them if that is forced, else those that run without ticks.
func measuresSplit(configuration, tickless, online string) bool {
	set := func(option string) bool {
		return strings.Contains("\n"+configuration+"\n", "\nCONFIG_"+option+"=y\n")
	}
	if set("VIRT_CPU_ACCOUNTING_NATIVE") {
		return true
	}
	forced := set("CONTEXT_TRACKING_USER_FORCE") || set("CONTEXT_TRACKING_FORCE") // the name until Linux 6.0
	return set("VIRT_CPU_ACCOUNTING_GEN") && (forced || online != "" && tickless == online)
}
