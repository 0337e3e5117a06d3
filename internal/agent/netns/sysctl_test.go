package netns_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/osthread"
)

func TestASettingIsWrittenWhereProcIsReadOnly(t *testing.T) {
	const name = "net/ipv4/tcp_migrate_req"
	ns := netnstest.New(t)
	read := func() string {
		var have []byte
		if err := ns.Do(func() (err error) { have, err = os.ReadFile("/proc/sys/" + name); return err }); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(have))
	}
	if got := read(); got != "0" {
		t.Fatalf("a new network has %s = %s", name, got)
	}
	before := ""
	err := ns.WithFD(func(fd int) error {
		return osthread.Run(func() (err error) {
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
			if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err == nil {
				t.Error("/proc/sys is not read-only here")
			}
			before, err = netns.SetSysctl(name, "1")
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "1" || before != "0" {
		t.Fatalf("%s = %s after it was set to 1; before it was said to be %s", name, got, before)
	}
}

func TestASettingThatTheKernelLacksIsToldFromFailure(t *testing.T) {
	err := netnstest.New(t).Do(func() error {
		_, err := netns.SetSysctl("net/ipv4/no_such_setting", "1")
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
