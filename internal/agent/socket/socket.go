// Package socket opens the agent's own sockets, in folders that others may write to. It does not know what is said on them.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

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
