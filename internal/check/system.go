package check

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// System is what the checks see of the machine. Tests hand in another.
type System interface {
	EffectiveUID() int
	// Output runs a command and returns what it printed on both streams; it wraps ErrNotFound if there is no such program.
	Output(ctx context.Context, command []string) (string, error)
	// AvailableMemoryMiB is the kernel's estimate of what new programs can use, in MiB.
	AvailableMemoryMiB() (uint64, error)
	// FreeDiskMiB is the space free for this user, in MiB, and the directory it was measured in.
	FreeDiskMiB() (free uint64, dir string, err error)
	// ProgramDir is the directory of the running executable.
	ProgramDir() (string, error)
	IsExecutable(path string) bool
	// ProbeKernel tries the feature for real, in a network namespace that is thrown away afterwards.
	ProbeKernel(ctx context.Context, feature KernelFeature) error
}

// Host is the machine that this process runs on.
type Host struct{}

// commandTimeout ends a tool that hangs on --version, as shims of version managers do without a network.
const commandTimeout = 10 * time.Second

// EffectiveUID implements System.
func (Host) EffectiveUID() int { return os.Geteuid() }

// Output implements System.
func (Host) Output(ctx context.Context, command []string) (string, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return "", fmt.Errorf("%s: %w", command[0], ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", fmt.Errorf("no answer within %s", commandTimeout)
	}
	if err != nil {
		if line := firstLine(string(output)); line != "" {
			return "", fmt.Errorf("%w: %s", err, line)
		}
		return "", err
	}
	return string(output), nil
}

// AvailableMemoryMiB implements System.
func (Host) AvailableMemoryMiB() (uint64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read available memory: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read available memory: %w", err)
			}
			return kib / 1024, nil
		}
	}
	return 0, errors.New("read available memory: /proc/meminfo has no MemAvailable")
}

// FreeDiskMiB implements System.
func (Host) FreeDiskMiB() (uint64, string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, "", fmt.Errorf("find the working directory: %w", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, "", fmt.Errorf("measure free space in %s: %w", dir, err)
	}
	return fs.Bavail * uint64(fs.Bsize) / (1 << 20), dir, nil
}

// ProgramDir implements System.
func (Host) ProgramDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the running executable: %w", err)
	}
	return filepath.Dir(exe), nil
}

// IsExecutable implements System.
func (Host) IsExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
