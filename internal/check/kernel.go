package check

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/osthread"
)

// KernelFeature names something that the local engine, the node agent or the node proxy asks of the kernel.
type KernelFeature string

// The features, as their users need them.
const (
	KernelNamespaces      KernelFeature = "namespaces"
	KernelLinks           KernelFeature = "links"
	KernelRedirect        KernelFeature = "redirect"
	KernelServiceNAT      KernelFeature = "service-nat"
	KernelTransparent     KernelFeature = "transparent"
	KernelPolicyRouting   KernelFeature = "policy-routing"
	KernelSocketDiagnosis KernelFeature = "socket-diagnosis"
	KernelCapture         KernelFeature = "capture"
	KernelAccelerator     KernelFeature = "accelerator"
)

var probes = map[KernelFeature]func() error{
	KernelLinks:           probeLinks,
	KernelRedirect:        probeRedirect,
	KernelServiceNAT:      probeServiceNAT,
	KernelTransparent:     probeTransparent,
	KernelPolicyRouting:   probePolicyRouting,
	KernelSocketDiagnosis: probeSocketDiagnosis,
	KernelCapture:         probeCapture,
	KernelAccelerator:     probeAccelerator,
}

// ProbeKernel implements System.
func (Host) ProbeKernel(ctx context.Context, feature KernelFeature) error {
	if feature == KernelNamespaces {
		return probeNamespaces(ctx)
	}
	probe, known := probes[feature]
	if !known {
		return fmt.Errorf("no probe for kernel feature %q", feature)
	}
	return inThrowawayNetns(ctx, probe)
}

// probeNamespaces starts a process the way the local engine starts itself.
func probeNamespaces(ctx context.Context) error {
	path, err := exec.LookPath("true")
	if err != nil {
		return fmt.Errorf("find a program to start: %w", err)
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start a process in namespaces of its own: %w", err)
	}
	return nil
}

// inThrowawayNetns runs the probe on a thread that has moved into a new network namespace. The thread ends
// with the probe, and the kernel removes the namespace with all that is in it.
func inThrowawayNetns(ctx context.Context, probe func() error) error {
	result := make(chan error, 1)
	osthread.Go(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		result <- probe()
	})
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("probe interrupted: %w", context.Cause(ctx))
	}
}

// step names the first of several system calls that fails.
func step(name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("%s: the kernel lacks it (%w)", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
