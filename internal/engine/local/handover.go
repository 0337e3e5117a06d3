package local

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A process that drains gives up the socket of its pages within this time, or is taken to keep it.
	handOverTimeout = 5 * time.Second
	handOverPoll    = 50 * time.Millisecond
)

// moves returns a channel that is closed when the pages of the daemon's next process take the place of this one's.
func (d *daemon) moves() <-chan struct{} {
	if d == nil {
		return nil // the node's proxy has not been started
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(chan struct{})
	}
	return d.moved
}

// move ends what follows the pages of the process before.
func (d *daemon) move() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}

// handOver waits until a process that was told to drain has given up the socket at path, and then ends what follows the daemon's pages there.
// A client that asks again hears the successor.
func (d *daemon) handOver(path string, pid int, ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	defer d.move()
	for listens(ctx, path) == pid {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-time.After(handOverPoll):
		}
	}
}

// listens is the process that listens on a unix socket; 0 if none does.
func listens(ctx context.Context, path string) int {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
