package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// notifySocket is where a process says how far it is, by the protocol of sd_notify(3).
type notifySocket struct {
	dir   string
	conn  *net.UnixConn
	ready chan struct{}

	mu     sync.Mutex
	status string
}

// listenNotify opens a socket for one process. Messages are read until it is closed.
func listenNotify() (*notifySocket, error) {
	dir, err := os.MkdirTemp("", "lateen-notify-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a process to report to: %w", err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify.sock"), Net: "unixgram"})
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("listen for a process that reports: %w", err)
	}
	s := &notifySocket{dir: dir, conn: conn, ready: make(chan struct{})}
	go s.read()
	return s, nil
}

func (s *notifySocket) env() string {
	return "NOTIFY_SOCKET=" + filepath.Join(s.dir, "notify.sock")
}

// lastStatus is what the process last said in words.
func (s *notifySocket) lastStatus() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *notifySocket) close() {
	s.conn.Close()
	os.RemoveAll(s.dir)
}

func (s *notifySocket) read() {
	said := false
	b := make([]byte, 4096)
	for {
		n, err := s.conn.Read(b)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b[:n])) {
			key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
			switch {
			case key == "READY" && value == "1" && !said:
				said = true
				close(s.ready)
			case key == "STATUS":
				s.mu.Lock()
				s.status = value
				s.mu.Unlock()
			}
		}
	}
}
