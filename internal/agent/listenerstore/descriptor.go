package listenerstore

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// descriptor is an open file that this process owns. It is no os.File: that would poll every held listener, and could set the
// file's blocking mode, which the proxy shares.
type descriptor int

// Close closes the file.
func (d descriptor) Close() error { return unix.Close(int(d)) }

// received takes the descriptors out of a message. The caller owns them.
func received(oob []byte) ([]descriptor, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read descriptors: %w", err)
	}
	var all []descriptor
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // something else than descriptors
		}
		for _, fd := range fds {
			all = append(all, descriptor(fd))
		}
	}
	return all, nil
}

func closeAll(all []descriptor) {
	for _, d := range all {
		d.Close()
	}
}

// inspect returns the cookie of a socket after checking that the socket is of the network namespace.
func inspect(d descriptor, inode uint64) (cookie uint64, err error) {
	ns, err := unix.IoctlRetInt(int(d), unix.SIOCGSKNS)
	if err != nil {
		return 0, fmt.Errorf("it is no socket, or its namespace cannot be seen: %w", err)
	}
	defer unix.Close(ns)
	var st unix.Stat_t
	if err := unix.Fstat(ns, &st); err != nil {
		return 0, err
	}
	if st.Ino != inode {
		return 0, fmt.Errorf("it lives in network namespace %d, not in the pod's, %d", st.Ino, inode)
	}
	return unix.GetsockoptUint64(int(d), unix.SOL_SOCKET, unix.SO_COOKIE)
}

// contents reads a file from its start, up to a limit in bytes or the first error.
func contents(d descriptor, limit int) []byte {
	b := make([]byte, 0, 64<<10)
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Pread(int(d), b[len(b):min(cap(b), limit)], int64(len(b)))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b
}
