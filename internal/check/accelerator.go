package check

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requirements of the node proxy to join connections in the kernel (docs/design/accelerator.md).
const (
	// AcceleratorVariable is the proxy's setting.
	AcceleratorVariable = "LATEEN_ACCELERATOR"
	// AcceleratorFix says what a node must have.
	AcceleratorFix = "without it all works as ever, and LATEEN_ACCELERATOR=off says that this is meant; it needs Linux 5.10 or newer, built with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_STREAM_PARSER and not locked down for confidentiality, and CAP_NET_ADMIN with CAP_SYS_ADMIN or with CAP_BPF and CAP_PERFMON"

	kernelTypes = "/sys/kernel/btf/vmlinux"
	lockdown    = "/sys/kernel/security/lockdown"
)

// AcceleratorKernel is the oldest Linux that has it.
func AcceleratorKernel() Version { return Version{5, 10} }

// Accelerator says whether these variables of a node proxy ask for the accelerator, and what is wrong with how they do.
func Accelerator(variable func(name string) string) (on bool, problem *Problem) {
	switch value := variable(AcceleratorVariable); {
	case value == "" || value == "off":
		return false, nil
	case value != "splice":
		return false, &Problem{
			Cause: fmt.Sprintf("%s is %q, with which no node proxy starts", AcceleratorVariable, value),
			Fix:   "leave it out, or use one of: off, splice",
		}
	case variable("LATEEN_SAME_NODE") == "false":
		return true, &Problem{
			Cause: "it is on and joins nothing: LATEEN_SAME_NODE=false keeps connections between pods of a node in tunnels",
			Fix:   "leave out one of the two settings",
		}
	}
	return true, nil
}

// acceleratorCheck is about node proxies with these variables, each NAME=VALUE. While it is off the kernel is no finding.
func acceleratorCheck(proxyEnv []string) func(context.Context, System) (string, *Problem) {
	variable := func(name string) string {
		value := ""
		for _, entry := range proxyEnv { // the last one counts, as for the engine
			if v, is := strings.CutPrefix(entry, name+"="); is {
				value = v
			}
		}
		return value
	}
	return func(ctx context.Context, sys System) (string, *Problem) {
		on, problem := Accelerator(variable)
		if problem != nil {
			return "", problem
		}
		root := sys.EffectiveUID() == 0
		var lacks error
		if root {
			lacks = sys.ProbeKernel(ctx, KernelAccelerator)
		}
		switch {
		case on && !root:
			return "", &Problem{Cause: "cannot be probed without root", Fix: "see LAT001"}
		case on && lacks != nil:
			return "", &Problem{Cause: "it is on and cannot work here: " + lacks.Error(), Fix: AcceleratorFix}
		case on:
			return "on; probed", nil
		case !root:
			return "off; whether it could be on cannot be probed without root", nil
		case lacks != nil:
			return "off; it could not work here: " + lacks.Error(), nil
		default:
			return "off; a mesh that is started with --proxy-env " + AcceleratorVariable + "=splice has it", nil
		}
	}
}

// probeAccelerator tries what of it can be tried without sockets to join; the proxy itself joins two at its start.
func probeAccelerator() error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return fmt.Errorf("ask for the kernel's version: %w", err)
	}
	if err := newEnough(firstLine(string(release))); err != nil {
		return err
	}
	if _, err := os.Stat(kernelTypes); err != nil {
		return fmt.Errorf("the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	// Where securityfs is not mounted nothing can be said, and the proxy's own trial will.
	if mode, err := os.ReadFile(lockdown); err == nil && lockedDown(string(mode)) {
		return fmt.Errorf("the kernel is locked down for confidentiality (%s), so that no BPF program reads its memory", lockdown)
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("look at this process's capabilities: %w", err)
	}
	if missing := missingCapabilities(string(status)); len(missing) > 0 {
		return fmt.Errorf("this process lacks %s", strings.Join(missing, ", "))
	}
	return tryMessageProgram()
}

func newEnough(release string) error {
	v, ok := FindVersion(release)
	if ok && v.Less(AcceleratorKernel()) {
		return fmt.Errorf("Linux %s is older than %s", release, AcceleratorKernel())
	}
	return nil
}

// lockedDown reads /sys/kernel/security/lockdown, which lists all modes and brackets the one that is.
func lockedDown(modes string) bool {
	return slices.Contains(strings.Fields(modes), "[confidentiality]")
}

// missingCapabilities reads /proc/PID/status. CAP_SYS_ADMIN stands for the two that were taken out of it; for CAP_NET_ADMIN not on all kernels.
func missingCapabilities(status string) []string {
	var has uint64
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			has, _ = strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		}
	}
	var missing []string
	for _, c := range []struct {
		name    string
		allowed uint64
	}{
		{"CAP_NET_ADMIN", 1 << unix.CAP_NET_ADMIN},
		{"CAP_BPF", 1<<unix.CAP_BPF | 1<<unix.CAP_SYS_ADMIN},
		{"CAP_PERFMON", 1<<unix.CAP_PERFMON | 1<<unix.CAP_SYS_ADMIN},
	} {
		if has&c.allowed == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing
}

// tryMessageProgram has the kernel take a map of sockets and a program for what its sockets send, which lets all pass.
func tryMessageProgram() error {
	create := struct{ kind, key, value, entries uint32 }{unix.BPF_MAP_TYPE_SOCKHASH, 8, 4, 2}
	sockets, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return step("make a map of sockets", err)
	}
	defer func() { _ = unix.Close(sockets) }()
	// r0 = SK_PASS; exit
	code := [2]struct {
		op, registers uint8
		offset        int16
		value         int32
	}{{op: unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, value: 1}, {op: unix.BPF_JMP | unix.BPF_EXIT}}
	licence := [...]byte{'A', 'p', 'a', 'c', 'h', 'e', '-', '2', '.', '0', 0}
	// The kernel's union bpf_attr for this command, with pointers where it has 64 bits for one.
	load := struct {
		kind, count   uint32
		code, licence unsafe.Pointer
	}{unix.BPF_PROG_TYPE_SK_MSG, uint32(len(code)), unsafe.Pointer(&code), unsafe.Pointer(&licence)}
	program, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))
	if err != nil {
		return step("load a program for sockets' messages", err)
	}
	defer func() { _ = unix.Close(program) }()
	attach := struct{ target, program, kind, flags uint32 }{uint32(sockets), uint32(program), unix.BPF_SK_MSG_VERDICT, 0}
	_, err = bpf(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	return step("attach it to a map of sockets", err)
}

// bpf is bpf(2), for which the system's packages have no call. attr is one of the kernel's structures of this size.
func bpf(command int, attr unsafe.Pointer, size uintptr) (int, error) {
	answer, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return int(answer), nil
}
