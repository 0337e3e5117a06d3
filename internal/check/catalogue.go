package check

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Catalogue lists every check, for node proxies with these variables (NAME=VALUE). A code is never reused for another meaning: users
// search for it.
func Catalogue(proxyEnv ...string) []Check {
	both := map[Purpose]Outcome{Up: Failure, Demo: Failure}
	checks := []Check{
		{Code: "LAT001", Title: "running as root", Weight: both, Probe: probeRoot},
		kernelCheck("LAT002", "private PID, mount and network namespaces", both, KernelNamespaces,
			"run on a Linux machine or virtual machine of your own; a container needs --privileged"),
		kernelCheck("LAT003", "virtual Ethernet pairs and a bridge", both, KernelLinks,
			"load the modules: modprobe veth bridge (or build them into the kernel)"),
		kernelCheck("LAT004", "nftables redirect rules", both, KernelRedirect,
			"load the modules: modprobe nf_tables nft_chain_nat nft_redir nft_ct nf_conntrack"),
		kernelCheck("LAT005", "nftables destination NAT by map", both, KernelServiceNAT,
			"load the modules: modprobe nf_tables nft_chain_nat nft_numgen nft_nat nft_masq"),
		kernelCheck("LAT006", "transparent sockets and packet marks", both, KernelTransparent,
			"run with CAP_NET_ADMIN in a kernel with CONFIG_IP_TRANSPARENT support (any distribution kernel)"),
		kernelCheck("LAT007", "policy routing", both, KernelPolicyRouting,
			"use a kernel with CONFIG_IP_MULTIPLE_TABLES (any distribution kernel)"),
		kernelCheck("LAT008", "socket diagnosis", both, KernelSocketDiagnosis,
			"load the modules: modprobe inet_diag tcp_diag"),
		kernelCheck("LAT009", "packet capture", map[Purpose]Outcome{Up: Warning, Demo: Failure}, KernelCapture,
			"load the module: modprobe af_packet; without it nothing can show what is encrypted on the wire"),
		{Code: "LAT010", Title: "memory", Weight: map[Purpose]Outcome{Up: Failure, Demo: Failure, Build: Warning}, Probe: probeMemory},
		{Code: "LAT011", Title: "disk space", Weight: map[Purpose]Outcome{Up: Failure, Demo: Failure, Build: Failure}, Probe: probeDisk},
		{Code: "LAT012", Title: "Lateen's programs", Weight: both, Probe: programs("lateen-control", "lateen-agent", "lateen-proxy")},
		{Code: "LAT013", Title: "Lateen's load generator", Weight: map[Purpose]Outcome{Demo: Failure}, Probe: programs("lateen-load")},
		{Code: "LAT014", Title: "accelerator", Weight: map[Purpose]Outcome{Up: Warning}, Probe: acceleratorCheck(proxyEnv)},
	}
	for _, m := range Minimums() {
		checks = append(checks, Check{Code: m.Code, Title: m.Name, Weight: m.Weight, Probe: m.probe})
	}
	return checks
}

func probeRoot(_ context.Context, sys System) (string, *Problem) {
	if uid := sys.EffectiveUID(); uid != 0 {
		return "", &Problem{
			Cause: fmt.Sprintf("effective user id is %d; network namespaces and packet rules need root", uid),
			Fix:   "run the same command as root (sudo)",
		}
	}
	return "uid 0", nil
}

// kernelCheck makes a check of a kernel feature. Without root every feature would fail for the same reason, which
// LAT001 has named already, so the finding then points there instead of blaming the kernel.
func kernelCheck(code, title string, weight map[Purpose]Outcome, feature KernelFeature, fix string) Check {
	return Check{Code: code, Title: title, Weight: weight, Probe: func(ctx context.Context, sys System) (string, *Problem) {
		if sys.EffectiveUID() != 0 {
			return "", &Problem{Cause: "cannot be probed without root", Fix: "see LAT001"}
		}
		if err := sys.ProbeKernel(ctx, feature); err != nil {
			return "", &Problem{Cause: err.Error(), Fix: fix}
		}
		return "probed", nil
	}}
}

// needs holds the least free memory and disk space, in MiB, that a purpose asks for. The demonstration runs three
// JVMs; a release build links a large binary and keeps two target directories.
var needs = struct{ memoryMiB, diskMiB uint64 }{memoryMiB: 1024, diskMiB: 6 * 1024}

func probeMemory(_ context.Context, sys System) (string, *Problem) {
	free, err := sys.AvailableMemoryMiB()
	if err != nil {
		return "", &Problem{Cause: err.Error(), Fix: "mount /proc"}
	}
	if free < needs.memoryMiB {
		return "", &Problem{
			Cause: fmt.Sprintf("%d MiB available, %d MiB needed", free, needs.memoryMiB),
			Fix:   "stop other programs or use a larger machine",
		}
	}
	return fmt.Sprintf("%d MiB available", free), nil
}

func probeDisk(_ context.Context, sys System) (string, *Problem) {
	free, dir, err := sys.FreeDiskMiB()
	if err != nil {
		return "", &Problem{Cause: err.Error(), Fix: "run from a directory that exists and can be read"}
	}
	if free < needs.diskMiB {
		return "", &Problem{
			Cause: fmt.Sprintf("%d MiB free in %s, %d MiB needed", free, dir, needs.diskMiB),
			Fix:   "free some space there; cargo clean gives back old build results",
		}
	}
	return fmt.Sprintf("%d MiB free in %s", free, dir), nil
}

// programs checks for executables beside the lateen executable, where the local engine looks for them.
func programs(names ...string) func(context.Context, System) (string, *Problem) {
	return func(_ context.Context, sys System) (string, *Problem) {
		dir, err := sys.ProgramDir()
		if err != nil {
			return "", &Problem{Cause: err.Error(), Fix: "run lateen by its path, such as bin/lateen"}
		}
		var missing []string
		for _, name := range names {
			if !sys.IsExecutable(filepath.Join(dir, name)) {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return "", &Problem{
				Cause: fmt.Sprintf("not in %s: %s", dir, strings.Join(missing, ", ")),
				Fix:   "run make build in Lateen's source directory, then its bin/lateen",
			}
		}
		return "in " + dir, nil
	}
}

// ErrNotFound is what System.Version wraps when the program is not on the PATH.
var ErrNotFound = errors.New("not found")
