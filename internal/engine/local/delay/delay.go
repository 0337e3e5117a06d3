// Package delay makes links that take a given time to cross, in user space: not every kernel can delay packets by itself
// (CONFIG_NET_SCH_NETEM). It knows frames and clocks; what the links connect is its caller's.
//
// A link is two TAP devices, and this process carries the frames from one to the other. That costs a read, a write and a
// wake-up for each frame, which a cable does not: what is measured over such a link is to be labelled as such.
package delay

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/netns"
)

// Max is the longest delay of a link: what is on its way is held in memory.
const Max = 500 * time.Millisecond

// underWay is how many frames may be on their way in one direction. While there are as many no further one is taken, and the
// device's own queue fills up and drops, as that of a link that is too slow does.
const underWay = 512

// largest is the largest frame with the header of the virtual device before it: segments are cut only where they leave the
// machine, so one may hold 64 KiB of an IP packet.
const largest = 64<<10 + 64

var buffers = sync.Pool{New: func() any { return new([largest]byte) }}

// frame is on its way.
type frame struct {
	due  time.Duration // on the clock of now
	data *[largest]byte
	n    int
}

// Connect makes a link between a device here, name, and one in the namespace at peerNS, peer; a frame takes d from one to the
// other, up to Max. Both are down and without addresses, as a new veth pair is. The link works until one of them is deleted
// or this process ends; both devices are gone then.
func Connect(name, peer, peerNS string, d time.Duration) error {
	if d < 0 || d > Max {
		return fmt.Errorf("delay %s: use up to %s", d, Max)
	}
	here, err := tap(name)
	if err != nil {
		return fmt.Errorf("make link %s: %w", name, err)
	}
	var there *os.File
	err = netns.Do(peerNS, func() (err error) {
		there, err = tap(peer)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("make link %s: its end %s: %w", name, peer, err), here.Close())
	}
	carry := func(from, to *os.File) {
		// Each of the two may be what the other waits for.
		defer from.Close()
		defer to.Close()
		direction(from, to, d)
	}
	go carry(here, there)
	go carry(there, here)
	return nil
}

// tap makes a device whose frames are read and written here.
func tap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w; the kernel needs CONFIG_TUN (try `modprobe tun`)", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		// Large segments and missing checksums pass as they are, header and all.
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make device %s: %w", name, err), unix.Close(fd))
	}
	// The descriptor must be non-blocking before os.NewFile: only then does a read wait without a thread.
	return os.NewFile(uintptr(fd), name), nil
}

// direction carries frames until a device is gone.
func direction(from, to *os.File, d time.Duration) {
	queue := make(chan frame, underWay)
	done := make(chan struct{})
	go func() {
		defer close(done)
		deliver(queue, to)
		// The reader may wait for a frame that will never come.
		from.Close()
	}()
	defer func() { close(queue); <-done }()
	for {
		data := buffers.Get().(*[largest]byte)
		n, err := from.Read(data[:])
		if err != nil {
			buffers.Put(data)
			return
		}
		select {
		case queue <- frame{now() + d, data, n}:
		case <-done:
			return
		}
	}
}

// deliver writes each frame when its time has come.
func deliver(queue <-chan frame, to *os.File) {
	// The thread is not given back: its timers differ from those of others.
	runtime.LockOSThread()
	// The kernel's default slack lets the thread sleep 50 µs longer. An error is ignored, since the delay is then only less exact.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for f := range queue {
		sleepUntil(f.due)
		_, err := to.Write(f.data[:f.n])
		buffers.Put(f.data)
		// A device that is down, or has no room, loses the frame.
		if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADFD) {
			return
		}
	}
}

// now is the kernel's monotonic clock.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // there is no kernel without it
	return time.Duration(t.Nano())
}

func sleepUntil(due time.Duration) {
	t := unix.NsecToTimespec(int64(due))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil) == unix.EINTR {
	}
}
