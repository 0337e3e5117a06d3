package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// Times that an engine may take to end in order, and to die when killed.
const (
	orderlyTimeout = 30 * time.Second
	killTimeout    = 10 * time.Second
)

// Down ends a mesh: in order if its engine answers, else by killing the engine, with which the kernel ends everything in it.
// It removes the run directory, also that of a mesh that was killed before. A mesh of which there is nothing yields
// api.ErrNotRunning, wrapped. progress may be nil.
func Down(ctx context.Context, mesh string, progress func(api.Event)) error {
	if progress == nil {
		progress = func(api.Event) {}
	}
	if !meshName.MatchString(mesh) {
		return fmt.Errorf("mesh name %q is not usable: take up to 32 lower-case letters, digits and dashes", mesh)
	}
	if os.Geteuid() != 0 {
		return errors.New("ending a local mesh needs root; run the command with sudo")
	}
	dir := runDir(api.RunDir(mesh))
	if _, err := os.Stat(string(dir)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s", api.ErrNotRunning, dir)
	}
	if r, err := readRecord(dir); err == nil && r.alive() {
		if err := end(ctx, mesh, r, progress); err != nil {
			return err
		}
	}
	lock, err := lockSoon(ctx, dir)
	if err != nil {
		return fmt.Errorf("mesh %s: its engine is gone or unknown, but something still has %s open; end that process, then run the command again: %w", mesh, dir, err)
	}
	defer lock.Close()
	return dir.remove()
}

func end(ctx context.Context, mesh string, r record, progress func(api.Event)) error {
	orderly, cancel := context.WithTimeout(ctx, orderlyTimeout)
	defer cancel()
	err := api.New(mesh).Down(orderly, progress)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil && gone(r, killTimeout) {
		return nil
	}
	progress(api.Event{Phase: "engine", State: api.EventStarted, Message: fmt.Sprintf("the engine does not end by itself (%v); killing pid %d", err, r.PID)})
	// A pidfd cannot come to mean another process between the check and the signal.
	p, err := os.FindProcess(r.PID)
	if err == nil && r.alive() {
		err = p.Signal(syscall.SIGKILL)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the engine, pid %d: %w", r.PID, err)
	}
	if !gone(r, killTimeout) {
		return fmt.Errorf("the engine, pid %d, was killed but does not go away; a process in it may be stuck in the kernel: see `ps -o stat,wchan %d`", r.PID, r.PID)
	}
	progress(api.Event{Phase: "engine", State: api.EventDone, Message: "engine killed; the kernel has ended all that was in it"})
	return nil
}

func gone(r record, timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); r.alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func lockSoon(ctx context.Context, dir runDir) (*os.File, error) {
	deadline := time.Now().Add(killTimeout)
	for {
		lock, err := dir.lock()
		if err == nil || !errors.Is(err, errBusy) || time.Now().After(deadline) || ctx.Err() != nil {
			return lock, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
