package delay

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"lateen.dev/lateen/internal/engine/local/netns"
)

// rig is two namespaces with a link between them.
func rig(t *testing.T, d time.Duration) (a, b string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root: network namespaces cannot be made without it")
	}
	dir := t.TempDir()
	a, b = filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, ns := range []string{a, b} {
		if err := netns.Create(ns); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { netns.Remove(ns) })
	}
	if err := netns.Do(a, func() error { return Connect("wire", "eth0", b, d) }); err != nil {
		t.Fatal(err)
	}
	up := func(ns, link, address string) {
		err := netns.Do(ns, func() error {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return err
			}
			ip, err := netlink.ParseAddr(address)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(l, ip); err != nil {
				return err
			}
			return netlink.LinkSetUp(l)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	up(a, "wire", "10.9.0.1/24")
	up(b, "eth0", "10.9.0.2/24")
	return a, b
}

func connect(t *testing.T, a, b string) (client, server net.Conn) {
	t.Helper()
	var l net.Listener
	if err := netns.Do(b, func() (err error) { l, err = net.Listen("tcp", "10.9.0.2:7"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	client, err := netns.Dial(ctx, a, "tcp", "10.9.0.2:7", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// A round trip takes the delay of both ways, and not another one for each end.
func TestARoundTripTakesTheDelayTwice(t *testing.T) {
	const delay = 30 * time.Millisecond
	a, b := rig(t, delay)
	client, server := connect(t, a, b)
	go io.Copy(server, server)
	const most = 4*delay - 5*time.Millisecond
	least := time.Hour
	// On a busy machine it takes some until one is quick.
	for i := 0; i < 5 || i < 100 && least > most; i++ {
		began := time.Now()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	if least < 2*delay || least > most {
		t.Errorf("the fastest round trip took %s, want about %s", least, 2*delay)
	}
}

// Everything arrives, in order, although far more is on its way than a queue holds.
func TestBulkArrivesWhole(t *testing.T) {
	a, b := rig(t, time.Millisecond)
	client, server := connect(t, a, b)
	const size = 32 << 20
	go func() {
		defer client.Close()
		block := make([]byte, 64<<10)
		for i := 0; i < size; i += len(block) {
			for j := range block {
				block[j] = byte((i + j) * 7 >> 3)
			}
			if _, err := client.Write(block); err != nil {
				return
			}
		}
	}()
	server.SetReadDeadline(time.Now().Add(time.Minute))
	got, buffer := 0, make([]byte, 256<<10)
	for {
		n, err := server.Read(buffer)
		for i := range n {
			if want := byte((got + i) * 7 >> 3); buffer[i] != want {
				t.Fatalf("byte %d is %d, want %d", got+i, buffer[i], want)
			}
		}
		got += n
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != size {
		t.Errorf("%d bytes arrived, want %d", got, size)
	}
}

// A link goes with either of its devices: nothing is left behind, here or there.
func TestALinkGoesWithEitherEnd(t *testing.T) {
	a, b := rig(t, time.Millisecond)
	err := netns.Do(b, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(15 * time.Second)
	for {
		err := netns.Do(a, func() error { _, err := netlink.LinkByName("wire"); return err })
		if err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the other end is still there")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestDelaysHaveALimit(t *testing.T) {
	for _, d := range []time.Duration{-1, Max + 1} {
		if err := Connect("wire", "eth0", "/nowhere", d); err == nil {
			t.Errorf("%s was taken", d)
		}
	}
}
