package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
)

// orphaned is closed when the process that started an attached mesh has ended. A pipe tells it, because a signal at the
// parent's death (PR_SET_PDEATHSIG) would follow the thread that started the engine, which may end long before.
func orphaned(attached bool, starter *os.File) <-chan struct{} {
	if !attached {
		_ = starter.Close()
		return nil
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, starter)
	}()
	return gone
}

// leaveNothing removes the directory of an attached mesh whose starter has ended: no command is left that would.
func (e *Engine) leaveNothing(orphaned <-chan struct{}) {
	select {
	case <-orphaned:
	default:
		return
	}
	if err := e.dir.uncover(); err != nil {
		e.log.Error("the mesh's directory is left; `lateen down` removes it", "err", err)
		return
	}
	// Writers of files in the directory have ended with the engine's context, a moment ago, or are about to.
	for range 10 {
		if e.dir.remove() == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// uncover ends the engine's mounts in the directory. One of them shows the user's own programs, which must not be
// removed with the directory.
func (d runDir) uncover() error {
	for _, dir := range []string{d.bin(), d.path("netns")} {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
		if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
			return fmt.Errorf("%s still shows %d files that are not the mesh's", dir, len(left))
		}
	}
	return nil
}

// remove removes the mesh's directory, and the common one if it was the last.
func (d runDir) remove() error {
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("remove the mesh's directory: %w", err)
	}
	// The common directory is not empty if there are other meshes; then it stays.
	_ = os.Remove(api.RunRoot)
	return nil
}
