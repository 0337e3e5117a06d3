package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// hostState is everything on the machine that a mesh must not touch, as text.
func hostState(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for name, args := range map[string][]string{
		"links":     {"ip", "-o", "link"},
		"addresses": {"ip", "-o", "addr"},
		"routes":    {"ip", "route", "show", "table", "all"},
		"rules":     {"ip", "rule"},
		"netns":     {"ip", "netns", "list"},
		"nft":       {"nft", "list", "ruleset"},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		state[name] = string(out)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		// Other tests, run at the same time, mount below temporary directories; a mesh has no business there.
		if f := strings.Fields(line); len(f) > 4 && !strings.HasPrefix(f[4], os.TempDir()+"/") {
			state["mounts"] += line
		}
	}
	for _, sysctl := range []string{"net/ipv4/ip_forward", "net/ipv4/tcp_congestion_control", "net/ipv4/conf/all/rp_filter", "net/ipv6/conf/default/disable_ipv6", "kernel/hostname", "net/ipv4/ip_unprivileged_port_start"} {
		b, err := os.ReadFile(filepath.Join("/proc/sys", sysctl))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		state[sysctl] = string(b)
	}
	return state
}

var lifetimes = regexp.MustCompile(`(valid_lft|preferred_lft|expires|age) \S+`)

func sameState(a, b map[string]string) error {
	for name, before := range a {
		if x, y := lifetimes.ReplaceAllString(before, ""), lifetimes.ReplaceAllString(b[name], ""); x != y {
			return fmt.Errorf("%s changed from\n%s\nto\n%s", name, before, b[name])
		}
	}
	return nil
}

// processesOf lists the processes, other than this one, that run the test binary or one of the programs. Their paths would
// not do: those are as their own mount namespaces have them.
func processesOf(programs string) []string {
	var ours []os.FileInfo
	for _, path := range []string{"/proc/self/exe", filepath.Join(programs, helperBinary)} {
		if st, err := os.Stat(path); err == nil {
			ours = append(ours, st)
		}
	}
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		st, err := os.Stat(filepath.Join(d, "exe"))
		if err != nil || filepath.Base(d) == strconv.Itoa(os.Getpid()) {
			continue
		}
		if slices.ContainsFunc(ours, func(o os.FileInfo) bool { return os.SameFile(o, st) }) {
			cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
			found = append(found, d+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
		}
	}
	slices.Sort(found)
	return found
}

func TestNothingIsLeft(t *testing.T) {
	needRoot(t)
	programs := binDir(t)
	before := hostState(t)
	for name, end := range map[string]func(*mesh) error{
		"down": func(m *mesh) error {
			var phases []string
			err := Down(context.Background(), m.Mesh, func(e api.Event) {
				if e.State == api.EventDone {
					phases = append(phases, e.Phase)
				}
			})
			if got := strings.Join(phases, " "); got != "pods agents proxies control engine" {
				return fmt.Errorf("ended in the order %s: %w", got, err)
			}
			return err
		},
		"SIGKILL": func(m *mesh) error { return syscall.Kill(m.PID, syscall.SIGKILL) },
		"SIGTERM": func(m *mesh) error { return syscall.Kill(m.PID, syscall.SIGTERM) },
		"an engine that does not answer": func(m *mesh) error {
			// The engine's socket is gone: all that `down` has is the recorded process.
			if err := os.Remove(runDir(m.RunDir).socket()); err != nil {
				return err
			}
			return Down(context.Background(), m.Mesh, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := up(t)
			m.applied(webAndClient)
			m.awaitReady("app=web", 2)
			if err := sameState(before, hostState(t)); err != nil {
				t.Errorf("while the mesh runs: %v", err)
			}
			if len(processesOf(programs)) == 0 {
				t.Error("no processes are found while the mesh runs: the test looks for the wrong ones")
			}
			if err := end(m); err != nil {
				t.Fatal(err)
			}
			m.eventually("everything is gone", func() error {
				if left := processesOf(programs); len(left) > 0 {
					return fmt.Errorf("processes: %v", left)
				}
				return sameState(before, hostState(t))
			})
			if strings.HasPrefix(name, "SIG") {
				// A directory of plain files is left; a new mesh of the name takes it over.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := Start(ctx, Options{Mesh: m.Mesh, Nodes: 1, BinDir: programs}, nil); err != nil {
					t.Fatalf("up after %s: %v", name, err)
				}
				if err := Down(context.Background(), m.Mesh, nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(m.RunDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the run directory is left: %v", err)
			}
			if err := Down(context.Background(), m.Mesh, nil); !errors.Is(err, api.ErrNotRunning) {
				t.Errorf("down of a mesh that is not there: %v", err)
			}
		})
	}
}

func TestUpFailsWithTheCause(t *testing.T) {
	needRoot(t)
	good := binDir(t)
	broken := t.TempDir()
	if err := os.Chmod(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{agentBinary, proxyBinary} {
		if err := os.Symlink(filepath.Join(good, name), filepath.Join(broken, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(broken, controlBinary), []byte("#!/bin/sh\necho the key is too old >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := hostState(t)
	for name, tc := range map[string]struct {
		o    Options
		want string
	}{
		"a bad name":                 {Options{Mesh: "A/B", Nodes: 1, BinDir: good}, "not usable"},
		"too many nodes":             {Options{Mesh: "x", Nodes: 65, BinDir: good}, "choose 1 to 64"},
		"programs are missing":       {Options{Mesh: "x", Nodes: 1, BinDir: t.TempDir()}, "make build"},
		"a proxy for no node":        {Options{Mesh: "x", Nodes: 1, BinDir: good, NodeProxy: map[string]string{"n2": "/bin/true"}}, `no node "n2"`},
		"a proxy that is no program": {Options{Mesh: "x", Nodes: 1, BinDir: good, NodeProxy: map[string]string{"n1": "/etc/passwd"}}, "not an executable"},
		"the control plane ends":     {Options{Mesh: meshFor(t), Nodes: 1, BinDir: broken}, "the control plane did not become ready: it ended 3 times, the last time because it exited with code 3"},
		"a proxy ends":               {Options{Mesh: meshFor(t), Nodes: 1, BinDir: good, NodeProxy: map[string]string{"n1": "/bin/false"}}, "the proxy of n1 did not become ready"},
	} {
		var failed api.Event
		_, err := Start(t.Context(), tc.o, func(e api.Event) {
			if e.State == api.EventFailed {
				failed = e
			}
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
		if tc.o.BinDir == broken && !slices.Contains(failed.Log, "the key is too old") {
			t.Errorf("%s: the event has no log lines: %+v", name, failed)
		}
		if meshName.MatchString(tc.o.Mesh) {
			if err := Down(context.Background(), tc.o.Mesh, nil); err != nil && !errors.Is(err, api.ErrNotRunning) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := sameState(before, hostState(t)); err != nil {
		t.Error(err)
	}
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	needRoot(t)
	programs := binDir(t)
	before := hostState(t)
	name := meshFor(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Start(ctx, Options{Mesh: name, Nodes: 2, BinDir: programs}, func(e api.Event) {
		if e.Phase == "agents" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := processesOf(programs); len(left) > 0 {
		t.Errorf("processes: %v", left)
	}
	if err := sameState(before, hostState(t)); err != nil {
		t.Error(err)
	}
	// A command that gives up asks for no logs either.
	if err := Down(context.Background(), name, nil); !errors.Is(err, api.ErrNotRunning) {
		t.Errorf("its directory is left: taking it down ended with %v", err)
	}
}
