package procstat

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

func TestWhichKernelsMeasureTheSplit(t *testing.T) {
	for name, tt := range map[string]struct {
		configuration, tickless string
		want                    bool
	}{
		"ticks":                        {"CONFIG_TICK_CPU_ACCOUNTING=y\n# CONFIG_VIRT_CPU_ACCOUNTING_GEN is not set\n", "", false},
		"unknown":                      {"", "0-1", false},
		"built in and not at work":     {"CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n", "(null)", false},
		"at work on one of two":        {"CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n", "1", false},
		"at work on all":               {"CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n", "0-1", true},
		"forced":                       {"CONFIG_X=y\nCONFIG_VIRT_CPU_ACCOUNTING_GEN=y\nCONFIG_CONTEXT_TRACKING_USER_FORCE=y\n", "", true},
		"the architecture's own":       {"CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y\n", "", true},
		"tickless, counted by samples": {"CONFIG_TICK_CPU_ACCOUNTING=y\n", "0-1", false},
	} {
		dir := t.TempDir()
		write := func(path string, text []byte) {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("sys/devices/system/cpu/online", []byte("0-1\n"))
		write("sys/devices/system/cpu/nohz_full", []byte(tt.tickless+"\n"))
		write("proc/sys/kernel/osrelease", []byte("6.1\n"))
		r := Reader{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), Boot: filepath.Join(dir, "boot")}
		write("boot/config-6.1", []byte(tt.configuration))
		if got := r.ExactSplit(); got != tt.want {
			t.Errorf("%s: got %v from /boot", name, got)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte(tt.configuration))
		_ = z.Close()
		write("proc/config.gz", packed.Bytes())
		write("boot/config-6.1", []byte("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE=y\n"))
		if got := r.ExactSplit(); got != tt.want {
			t.Errorf("%s: got %v from the kernel", name, got)
		}
	}
	if (Reader{Proc: t.TempDir()}).ExactSplit() {
		t.Error("a reader that knows nothing says yes")
	}
}
