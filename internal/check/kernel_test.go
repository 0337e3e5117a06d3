package check

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// The machine that runs the tests must be able to run a mesh, so every probe succeeds there.
func TestEveryKernelFeatureIsFoundWithRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the kernel probes need root: run the tests as root")
	}
	features := []KernelFeature{KernelNamespaces}
	for feature := range probes {
		features = append(features, feature)
	}
	slices.Sort(features)
	for _, feature := range features {
		t.Run(string(feature), func(t *testing.T) {
			if err := (Host{}).ProbeKernel(t.Context(), feature); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestProbesLeaveNothingBehind(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the kernel probes need root: run the tests as root")
	}
	tables := func() []string {
		conn, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		list, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, table := range list {
			names = append(names, table.Name)
		}
		return names
	}
	links := func() string {
		// Of this thread, not of the process's first one (/proc/net): that one may have run a probe, and then it stays
		// in the probe's namespace for good.
		content, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for _, feature := range []KernelFeature{KernelRedirect, KernelServiceNAT, KernelLinks, KernelPolicyRouting} {
		if err := (Host{}).ProbeKernel(t.Context(), feature); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(tables(), "lateen_probe") {
		t.Error("a table of the probes is left in the host's namespace")
	}
	if strings.Contains(links(), "probe") {
		t.Error("a device of the probes is left in the host's namespace")
	}
}

func TestAMissingFeatureIsNamedAsTheKernels(t *testing.T) {
	err := step("add a redirect rule", unix.ENOENT)
	if err == nil || !strings.Contains(err.Error(), "the kernel lacks it") || !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
	if err := step("add a redirect rule", unix.EPERM); strings.Contains(err.Error(), "lacks") {
		t.Errorf("a refused call is blamed on the kernel: %v", err)
	}
}

func TestAnUnknownFeatureIsAnError(t *testing.T) {
	if err := (Host{}).ProbeKernel(context.Background(), "teleport"); err == nil {
		t.Error("no error")
	}
}
