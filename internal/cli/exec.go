package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
)

// exec runs a command in a pod; the command's exit code becomes this program's.
func (cmds podCommands) exec(ctx context.Context, request api.ExecRequest, interactive, tty bool) error {
	streams := api.Streams{Stdout: cmds.app.Stdout, Stderr: cmds.app.Stderr}
	if interactive {
		streams.Stdin = cmds.app.Stdin
	}
	if tty {
		file, ok := cmds.app.Stdin.(*os.File)
		if !ok || !isatty.IsTerminal(file.Fd()) {
			return usageError{errNoTerminal}
		}
		restore, err := rawMode(file)
		if err != nil {
			return err
		}
		defer restore()
		sizes, stop := terminalSizes(file)
		defer stop()
		request.TTY, request.Term = true, os.Getenv("TERM")
		request.Size, _ = terminalSize(file)
		streams.Stdin, streams.Resize = file, sizes
	}
	code, err := cmds.app.client().Exec(ctx, request, streams)
	if err != nil && code != 0 {
		return &notRun{err, code}
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return exitStatus(code)
	}
	return nil
}

// notRun is the error of a command that exec could not run. Its exit code is that of a shell: 127 if there is no such command, and
// otherwise 126.
type notRun struct {
	error
	code int
}

func (e *notRun) Unwrap() error { return e.error }

// rawMode passes keys on as they are typed, so that the terminal in the pod does the editing and the signals.
func rawMode(file *os.File) (restore func(), err error) {
	fd := int(file.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's mode: %w", err)
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set the terminal's mode: %w", err)
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}

func terminalSize(file *os.File) (api.Size, error) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return api.Size{}, fmt.Errorf("read the terminal's size: %w", err)
	}
	return api.Size{Rows: size.Row, Cols: size.Col}, nil
}

// terminalSizes reports each new size of the terminal until stop is called.
func terminalSizes(file *os.File) (sizes <-chan api.Size, stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	out, done := make(chan api.Size), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			size, err := terminalSize(file)
			if err != nil {
				return
			}
			select {
			case out <- size:
			case <-done:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(changed)
		close(done)
	}
}
