package redirect

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/osthread"
)

// shared lets several listeners have one port, as proxies do.
func shared(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// Half of the connections are given to a listener that does not accept; then it is closed. Not kept, they are reset: this test
// fails without KeepQueues.
func TestWhatWaitsForAListenerThatClosesIsTakenByTheOther(t *testing.T) {
	w := newWorld(t)
	if err := KeepQueues(w.pod); err != nil {
		t.Fatal(err)
	}
	const at = podAddress + ":9000"
	goes := netnstest.Listen(t, w.pod, at, shared)
	stays := netnstest.Listen(t, w.pod, at, shared)
	const many = 40
	var clients []net.Conn
	for range many {
		c, err := netnstest.Dial(w.peer, "", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	goes.Close()
	_ = stays.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
	for i := range many {
		c, err := stays.Accept()
		if err != nil {
			t.Fatalf("%d of %d connections reached the listener that stays: %v", i, many, err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for _, c := range clients {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("a connection that waited: %v", err)
		}
	}
}

func TestASettingIsWrittenWhereProcIsReadOnly(t *testing.T) {
	ns := netnstest.New(t)
	read := func() string {
		var have []byte
		if err := ns.Do(func() (err error) { have, err = os.ReadFile("/proc/sys/" + migrate); return err }); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(have))
	}
	if got := read(); got != "0" {
		t.Fatalf("a new network has %s = %s", migrate, got)
	}
	err := ns.WithFD(func(fd int) error {
		return osthread.Run(func() error {
			// In mounts of this thread's own, as a container has them.
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return err
			}
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := os.WriteFile("/proc/sys/"+migrate, []byte("1"), 0); err == nil {
				t.Error("/proc/sys is not read-only here")
			}
			return setSysctl(migrate, "1")
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "1" {
		t.Fatalf("%s = %s after it was set to 1", migrate, got)
	}
}
