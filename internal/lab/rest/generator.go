package rest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// maxResult bounds what is read of a generator's result, in bytes.
	maxResult  = 64 << 20
	orderlyEnd = 15 * time.Second
	// maxLine bounds a line of the generator's standard error, in bytes.
	maxLine = 16 << 10
)

// Generator is the program that carries runs out.
type Generator struct {
	// Path is lateen-load's executable.
	Path string
	// Env is added to this process's environment.
	Env []string
	// Patience is how long a generator that was interrupted may take to write what it has; 0 stands for 15 s.
	Patience time.Duration
}

// Result is what a generator left behind.
type Result struct {
	// Report is the generator's own, Fortio the same run as Fortio has it.
	Report, Fortio []byte
}

// run carries a run out. When ctx ends the generator is interrupted and its result is that of the time until then; a generator
// that does not end by itself then is killed, and with this process every generator is.
func (g Generator) run(ctx context.Context, args []string, progress func(Progress)) (Result, error) {
	dir, err := os.MkdirTemp("", "lateen-lab-run-")
	if err != nil {
		return Result{}, fmt.Errorf("make a directory for the result: %w", err)
	}
	defer os.RemoveAll(dir)
	report, fortio := filepath.Join(dir, "report.json"), filepath.Join(dir, "fortio.json")
	cmd := exec.CommandContext(ctx, g.Path, append(args, "--json="+report, "--fortio-json="+fortio, "--progress=json")...)
	cmd.Env = append(os.Environ(), g.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = cmp.Or(g.Patience, orderlyEnd)
	// A group of its own: an interrupt at the terminal is this process's, which then ends its runs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr, said := io.Pipe()
	cmd.Stderr = said
	var last string
	read := make(chan struct{})
	go func() {
		defer close(read)
		last = follow(stderr, progress)
	}()
	failed := runOnThread(cmd)
	_ = said.Close() // a pipe in memory
	<-read
	var result Result
	if result.Report, err = readResult(report); err != nil {
		return result, err
	}
	if result.Fortio, err = readResult(fortio); err != nil {
		return result, err
	}
	if result.Report != nil && result.Fortio != nil {
		return result, nil // a run in which every request failed is a result as well
	}
	if last == "" {
		last = fmt.Sprintf("%s left no result: %v", filepath.Base(g.Path), failed)
	}
	if ctx.Err() != nil {
		return result, fmt.Errorf("stopped before there was a result: %w", ctx.Err())
	}
	return result, errors.New(last)
}

// runOnThread runs a child from a thread that lives as long as it does: the kernel counts the end of the thread that made a
// child as its parent's.
func runOnThread(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- cmd.Run()
	}()
	return <-done
}

// readResult is nil where the file is not there.
func readResult(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the generator's result: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("read the generator's result: %w", err)
	}
	if len(text) > maxResult {
		return nil, fmt.Errorf("read the generator's result: more than %d MiB", maxResult>>20)
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, nil
	}
	return text, nil
}

// follow reads a generator's standard error to its end: lines of JSON are progress, the last of the others is returned.
func follow(from io.Reader, progress func(Progress)) (last string) {
	lines := bufio.NewReaderSize(from, maxLine)
	wrongCommand := false // its reason comes first, then how to do better
	for {
		line, err := lines.ReadSlice('\n')
		text := strings.TrimSpace(string(line))
		var p Progress
		switch {
		case text == "":
		case text[0] == '{':
			if json.Unmarshal([]byte(text), &p) == nil {
				progress(p)
			}
		case wrongCommand:
		default:
			last, wrongCommand = strings.CutPrefix(text, "error: ")
			last = strings.TrimPrefix(last, "lateen-load: ")
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return last
		}
	}
}
