package local

import (
	"net"
	"os"
	"testing"
)

// Only what is established counts, and once, however many look at one namespace.
func TestEstablishedCountsOpenConnections(t *testing.T) {
	before := established("/proc", os.Getpid(), []int{os.Getpid()})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := established("/proc", os.Getpid(), []int{os.Getpid(), os.Getppid(), 1 << 30}); got != before+2 {
		t.Errorf("%d connections, want %d: both ends of one, and no listener", got, before+2)
	}
	client.Close()
	server.Close()
	if got := established("/proc", os.Getpid(), []int{os.Getpid()}); got != before {
		t.Errorf("%d connections after the end, want %d", got, before)
	}
	if got := established("/proc", 1<<30, nil); got != 0 {
		t.Errorf("%d connections of nobody", got)
	}
}
