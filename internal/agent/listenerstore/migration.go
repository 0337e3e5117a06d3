package listenerstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// migrateSetting is net.ipv4.tcp_migrate_req (Linux 5.14), which each network namespace has for IPv4 and IPv6 together. With it
// the kernel moves the queue of a listener that closes to another listener of the same port (SO_REUSEPORT). Without it the
// kernel resets the connections in the queue.
const migrateSetting = "net/ipv4/tcp_migrate_req"

// handshakes is how long the setting stays on after listeners were closed, so that a handshake that has begun can end with
// another listener.
const handshakes = time.Second

// migrator closes listeners of ended proxies and has the kernel move their queues to the listeners of the next proxy. The next
// proxy has listeners of its own if it started before this agent had the others. The setting concerns every listener of the pod,
// the application's too, so it is on only while listeners close.
type migrator struct {
	log  *slog.Logger
	told sync.Once

	mu      sync.Mutex
	begun   map[uint64]*migration // by network namespace
	running sync.WaitGroup
	end     chan struct{}
}

// migration is the setting of one network namespace while it is on.
type migration struct {
	count  int    // of groups of listeners for which the setting is still on
	before string // the value of the setting that is given back
}

func newMigrator(log *slog.Logger) *migrator {
	return &migrator{log: log, begun: map[uint64]*migration{}, end: make(chan struct{})}
}

// stop gives every pod its setting back and returns when that is done.
func (m *migrator) stop() {
	close(m.end)
	m.running.Wait()
}

// close closes listeners of one network namespace. Where the kernel has no such setting, it resets the connections in their queues.
func (m *migrator) close(inode uint64, sockets []io.Closer) {
	defer closeEach(inode, sockets)
	var pod *netns.Namespace
	for _, socket := range sockets {
		if d, ok := socket.(descriptor); ok {
			var err error
			if pod, err = namespaceOf(d); err != nil {
				m.tell(err)
				return
			}
			break
		}
	}
	if pod == nil {
		return
	}
	if err := m.begin(inode, pod); err != nil {
		pod.Close()
		m.tell(err)
		return
	}
	m.running.Go(func() {
		defer pod.Close()
		select {
		case <-time.After(handshakes):
		case <-m.end:
		}
		if err := m.finish(inode, pod); err != nil {
			m.log.Warn(fmt.Sprintf("a setting of the network namespace %d is not as it was", inode), "err", err)
		}
	})
}

func (m *migrator) begin(inode uint64, pod *netns.Namespace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if under := m.begun[inode]; under != nil {
		under.count++
		return nil
	}
	before, err := set(pod, "1")
	if err == nil {
		m.begun[inode] = &migration{count: 1, before: before}
	}
	return err
}

func (m *migrator) finish(inode uint64, pod *netns.Namespace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	under := m.begun[inode]
	if under.count--; under.count > 0 {
		return nil
	}
	delete(m.begun, inode)
	_, err := set(pod, under.before)
	return err
}

func (m *migrator) tell(err error) {
	m.told.Do(func() {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this kernel cannot move them to another listener; 5.14 and later can")
		}
		m.log.Warn("connections that waited for a node proxy that is gone are reset if the next one has listeners of its own", "err", err)
	})
}

func set(pod *netns.Namespace, value string) (before string, err error) {
	err = pod.Do(func() error {
		before, err = netns.SetSysctl(migrateSetting, value)
		return err
	})
	return before, err
}

// namespaceOf opens the network namespace of a socket.
func namespaceOf(d descriptor) (*netns.Namespace, error) {
	fd, err := unix.IoctlRetInt(int(d), unix.SIOCGSKNS)
	if err != nil {
		return nil, fmt.Errorf("ask where a socket lives: %w", err)
	}
	unix.CloseOnExec(fd)
	return netns.Adopt(os.NewFile(uintptr(fd), "a pod's network"))
}
