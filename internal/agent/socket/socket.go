// Package socket opens the agent's own sockets, in folders that others may write to, and accepts their connections. It does not know the
// protocols on them.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// asideEnd is behind the name of a folder that was in a socket's way.
const asideEnd = ".in-the-way"

// Listen opens a socket at path that only root can reach, replacing what an earlier agent, or somebody else who writes to that
// folder, has left under that name: a folder is put aside, a link is not followed. network is "unix" or "unixpacket". The file
// stays when the listener is closed: an agent that follows may have made its own already.
func Listen(network, path string) (*net.UnixListener, error) {
	if err := clear(path); err != nil {
		return nil, fmt.Errorf("replace what is at %s: %w", path, err)
	}
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(context.Background(), network, path)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	return u, nil
}

// Serve accepts connections until ctx ends. It calls open for each, with numbers from 1, and runs the function that open returns in a
// goroutine of its own. It waits for gap between two connections. When Serve returns, every connection is closed and every such function has returned. A failure to accept is the
// error, unless ctx has ended.
func Serve(ctx context.Context, l *net.UnixListener, gap time.Duration, open func(number int, conn *net.UnixConn) func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for number := 1; ; number++ {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		serve := open(number, conn)
		sessions.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			serve(ctx)
		})
		if gap > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(gap):
			}
		}
	}
}

// private has the file be root's alone from the moment that it is there: its mode is the socket's. To change it later by its
// name would change whatever has that name by then.
func private(_, _ string, conn syscall.RawConn) error {
	var err error
	if controlErr := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); controlErr != nil {
		return controlErr
	}
	return err
}

// clear takes what has the name out of the way.
func clear(path string) error {
	err := unix.Unlink(path)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		// A directory is moved aside, not removed: it may be a user's, put there by mistake.
		aside := path + asideEnd
		if err = os.RemoveAll(aside); err == nil {
			err = os.Rename(path, aside)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
