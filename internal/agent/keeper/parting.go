package keeper

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

// migrate is net.ipv4.tcp_migrate_req, of each network namespace by itself, for IPv6 too (Linux 5.14): what waits in the queue of
// a listener that closes goes to another one of the same port (SO_REUSEPORT) instead of being reset.
const migrate = "net/ipv4/tcp_migrate_req"

// handshakes is how long the setting stays on after listeners were closed: a handshake that had begun with one ends with another.
const handshakes = time.Second

// partings close the listeners of proxies that are gone where the next proxy has listeners of its own, as when it started before
// this agent was given the others: what waits in the old ones goes to the new. The setting that does it concerns every listener
// of the pod, the applications' too, so it is on for that moment only.
type partings struct {
	log  *slog.Logger
	told sync.Once

	mu      sync.Mutex
	begun   map[uint64]*parting // by network namespace
	running sync.WaitGroup
	end     chan struct{}
}

type parting struct {
	count  int // of those whose moment lasts
	before string
}

func newPartings(log *slog.Logger) *partings {
	return &partings{log: log, begun: map[uint64]*parting{}, end: make(chan struct{})}
}

// over gives every pod its setting back, and returns when that is done.
func (p *partings) over() {
	close(p.end)
	p.running.Wait()
}

// close closes listeners of one network namespace. Where the kernel cannot be told to move what waits in them, that is reset.
func (p *partings) close(inode uint64, sockets []io.Closer) {
	defer closeEach(inode, sockets)
	var pod *netns.Namespace
	for _, socket := range sockets {
		if d, ok := socket.(descriptor); ok {
			var err error
			if pod, err = home(d); err != nil {
				p.tell(err)
				return
			}
			break
		}
	}
	if pod == nil {
		return
	}
	if err := p.begin(inode, pod); err != nil {
		pod.Close()
		p.tell(err)
		return
	}
	p.running.Go(func() {
		defer pod.Close()
		select {
		case <-time.After(handshakes):
		case <-p.end:
		}
		if err := p.finish(inode, pod); err != nil {
			p.log.Warn(fmt.Sprintf("a setting of the network namespace %d is not as it was", inode), "err", err)
		}
	})
}

func (p *partings) begin(inode uint64, pod *netns.Namespace) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if under := p.begun[inode]; under != nil {
		under.count++
		return nil
	}
	before, err := set(pod, "1")
	if err == nil {
		p.begun[inode] = &parting{count: 1, before: before}
	}
	return err
}

func (p *partings) finish(inode uint64, pod *netns.Namespace) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	under := p.begun[inode]
	if under.count--; under.count > 0 {
		return nil
	}
	delete(p.begun, inode)
	_, err := set(pod, under.before)
	return err
}

func (p *partings) tell(err error) {
	p.told.Do(func() {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this kernel cannot move them to another listener; 5.14 and later can")
		}
		p.log.Warn("connections that waited for a node proxy that is gone are reset if the next one has listeners of its own", "err", err)
	})
}

func set(pod *netns.Namespace, value string) (before string, err error) {
	err = pod.Do(func() error {
		before, err = netns.SetSysctl(migrate, value)
		return err
	})
	return before, err
}

// home is the network namespace that a socket lives in.
func home(d descriptor) (*netns.Namespace, error) {
	fd, err := unix.IoctlRetInt(int(d), unix.SIOCGSKNS)
	if err != nil {
		return nil, fmt.Errorf("ask where a socket lives: %w", err)
	}
	unix.CloseOnExec(fd)
	return netns.Adopt(os.NewFile(uintptr(fd), "a pod's network"))
}
