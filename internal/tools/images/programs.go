package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/tools/images/rootfs"
)

// inputs are files that are read while an image is written.
type inputs struct {
	open []*os.File
}

func (in *inputs) close() {
	for _, f := range in.open {
		f.Close()
	}
}

// file is one of this machine as content of an image.
func (in *inputs) file(name string) (rootfs.Content, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	in.open = append(in.open, f)
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return sized{f, info.Size()}, nil
}

type sized struct {
	*os.File
	size int64
}

func (s sized) Size() int64 { return s.size }

// libraries returns what a program is linked to and its loader, by the paths at which they are found on this machine. A
// static program has none.
func libraries(ctx context.Context, program string) ([]string, error) {
	file, err := elf.Open(program)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not built: run `make build`: %w", filepath.Base(program), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no program for Linux: %w", program, err)
	}
	defer file.Close()
	dynamic := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if !dynamic {
		return nil, nil
	}
	cmd := exec.CommandContext(ctx, "ldd", program)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LD_PRELOAD=", "LD_LIBRARY_PATH=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return parseLdd(string(out))
}

// parseLdd reads lines such as "libc.so.6 => /lib/libc.so.6 (0x7f…)" and "/lib64/ld-linux-x86-64.so.2 (0x7f…)".
func parseLdd(text string) ([]string, error) {
	var found []string
	for line := range strings.Lines(text) {
		name, rest, arrow := strings.Cut(strings.TrimSpace(line), " => ")
		if !arrow {
			rest = name
		}
		if strings.HasPrefix(rest, "not found") {
			return nil, fmt.Errorf("library %s is not on this machine", name)
		}
		at, _, _ := strings.Cut(rest, " (")
		if filepath.IsAbs(at) {
			found = append(found, at)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("ldd names no library: %.80q", text)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
