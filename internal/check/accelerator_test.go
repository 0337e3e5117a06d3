package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTheAcceleratorIsAFindingOnlyWhenItIsOn(t *testing.T) {
	lacks := errors.New("Linux 5.4.0 is older than 5.10")
	for _, tt := range []struct {
		name                 string
		uid                  int
		lacks                error
		env                  []string
		outcome              Outcome
		found, cause, remedy string
	}{
		{"off", 0, nil, nil, OK, "off; a mesh that is started with --proxy-env LATEEN_ACCELERATOR=splice", "", ""},
		{"off by name", 0, nil, []string{"LATEEN_ACCELERATOR=off"}, OK, "off; a mesh that is started with", "", ""},
		{"off, and it could not work", 0, lacks, nil, OK, "off; it could not work here: Linux 5.4.0", "", ""},
		{"off, without root", 1000, lacks, nil, OK, "cannot be probed without root", "", ""},
		{"on", 0, nil, []string{"A=b", "LATEEN_ACCELERATOR=splice"}, OK, "on; probed", "", ""},
		{"on, then off", 0, lacks, []string{"LATEEN_ACCELERATOR=splice", "LATEEN_ACCELERATOR=off"}, OK, "off; it could not", "", ""},
		{"on, and it cannot work", 0, lacks, []string{"LATEEN_ACCELERATOR=splice"}, Warning, "", "it is on and cannot work here: Linux 5.4.0", "5.10 or newer"},
		{"on, without root", 1000, nil, []string{"LATEEN_ACCELERATOR=splice"}, Warning, "", "without root", "see LAT001"},
		{"on, and nothing is handed over", 0, nil, []string{"LATEEN_ACCELERATOR=splice", "LATEEN_SAME_NODE=false"}, Warning, "", "joins nothing", "leave out one"},
		{"nothing that there is", 0, nil, []string{"LATEEN_ACCELERATOR=yes"}, Warning, "", `LATEEN_ACCELERATOR is "yes"`, "off, splice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := goodMachine()
			m.uid = tt.uid
			if tt.lacks != nil {
				m.lacks[KernelAccelerator] = tt.lacks
			}
			report := Run(t.Context(), m, Up, tt.env...)
			i := slices.IndexFunc(report.Results, func(r Result) bool { return r.Code == "LAT014" })
			if i < 0 {
				t.Fatal("it is not checked")
			}
			r := report.Results[i]
			if r.Outcome != tt.outcome || !strings.Contains(r.Found, tt.found) || !strings.Contains(r.Cause, tt.cause) || !strings.Contains(r.Fix, tt.remedy) {
				t.Errorf("got %s: found %q, cause %q, fix %q", r.Outcome, r.Found, r.Cause, r.Fix)
			}
		})
	}
}

// counting is a machine that says which features were tried.
type counting struct {
	*machine
	tried []KernelFeature
}

func (c *counting) ProbeKernel(ctx context.Context, f KernelFeature) error {
	c.tried = append(c.tried, f)
	return c.machine.ProbeKernel(ctx, f)
}

func TestOnlyAMeshNeedsTheAccelerator(t *testing.T) {
	for _, purpose := range []Purpose{Demo, Build} {
		c := &counting{machine: goodMachine()}
		Run(t.Context(), c, purpose)
		if slices.Contains(c.tried, KernelAccelerator) {
			t.Errorf("it is tried for %s", purpose)
		}
	}
}

func TestAnOldKernelHasNoAccelerator(t *testing.T) {
	for release, old := range map[string]bool{
		"5.4.0-150-generic": true, "4.18.0-553.el8.x86_64": true, "5.9.16": true,
		"5.10.0-28-amd64": false, "6.1.0-13-amd64": false, "6.18.44": false, "a kernel of one's own": false,
	} {
		if err := newEnough(release); (err != nil) != old {
			t.Errorf("%s: %v", release, err)
		}
	}
}

func TestALockedDownKernelIsSeen(t *testing.T) {
	for modes, locked := range map[string]bool{"none integrity [confidentiality]\n": true, "none [integrity] confidentiality\n": false, "[none] integrity confidentiality\n": false, "": false} {
		if lockedDown(modes) != locked {
			t.Errorf("%q: %v", modes, !locked)
		}
	}
}

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	for effective, want := range map[string]string{
		"000001ffffffffff": "",
		"0000000000201000": "",                     // CAP_NET_ADMIN, CAP_SYS_ADMIN
		"0000000000200000": "CAP_NET_ADMIN",        // CAP_SYS_ADMIN
		"000000c000001000": "",                     // the three
		"0000000000001000": "CAP_BPF, CAP_PERFMON", // CAP_NET_ADMIN
		"0000008000001000": "CAP_PERFMON",          // and CAP_BPF
		"0000000000000000": "CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON",
	} {
		status := "Name:\tlateen\nCapPrm:\t000001ffffffffff\nCapEff:\t" + effective + "\nCapBnd:\t000001ffffffffff\n"
		if got := strings.Join(missingCapabilities(status), ", "); got != want {
			t.Errorf("%s lacks %q, want %q", effective, got, want)
		}
	}
}
