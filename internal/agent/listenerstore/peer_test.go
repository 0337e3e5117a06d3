package listenerstore

import (
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	storepb "lateen.dev/lateen/internal/gen/listenerstore"
)

// byNumber knows processes as on a kernel without SO_PEERPIDFD.
func byNumber(conn *net.UnixConn) descriptor { return peerBy(conn, 1<<20) }

// unknown knows none.
func unknown(*net.UnixConn) descriptor { return -1 }

func startWith(t *testing.T, peer func(*net.UnixConn) descriptor, complete <-chan struct{}) *rig {
	t.Helper()
	pod, err := netns.Open("/proc/self/ns/net") // nothing is done there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pod.Close() })
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "listener-store.sock"), pod: pod, lost: make(chan []Lost, 4), peer: peer, complete: complete}
	r.serve()
	return r
}

// ledger makes one with a name and an open connection, locked until the test or its closing ends that.
func (r *rig) ledger() *os.File {
	r.t.Helper()
	folder := filepath.Join(filepath.Dir(r.path), "ledgers")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		r.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(folder, "1"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	record := make([]byte, recordLength)
	record[0], record[1] = recordOpen, 1
	binary.LittleEndian.PutUint64(record[8:], r.pod.ID().Inode)
	if _, err := f.WriteAt(record, 0); err != nil {
		r.t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) stillOpen(ledger *os.File) {
	r.t.Helper()
	if open := readLedger(contents(descriptor(ledger.Fd()), maxLedger)); len(open) != 1 {
		r.t.Fatalf("the ledger of a proxy that lives says %v", open)
	}
}

func TestWithoutPeerPidfdWhatAKilledProxyHadOpenIsNamed(t *testing.T) {
	r := startToKill(t, byNumber)
	cmd := r.spawn()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	r.lostOne()
	r.connect()
	r.nothingLost("it was reported already")
}

func TestAProxyThatOnlyReconnectsHasLostNothing(t *testing.T) {
	r := start(t)
	p := r.connect()
	p.conn.Close()
	r.connect()
	r.nothingLost("the proxy lives")
}

func TestAProxyThatOnlyReconnectsHasLostNothingHoweverItIsKnown(t *testing.T) {
	for name, peer := range map[string]func(*net.UnixConn) descriptor{"by number": byNumber, "not at all": unknown} {
		t.Run(name, func(t *testing.T) {
			r := startWith(t, peer, nil)
			ledger := r.ledger()
			p, err := connect(r.path)
			if err != nil {
				t.Fatal(err)
			}
			defer p.conn.Close()
			r.done(p, hello(storepb.Version_V1, 1), int(ledger.Fd()))
			p.conn.Close()
			r.nothingLost("the proxy lives")
			r.connect()
			r.nothingLost("the proxy lives")
			r.stillOpen(ledger)
			// It is gone.
			ledger.Close()
			eventually(t, "the agent has given its duplicate back", func() bool {
				r.connect()
				return len(r.lost) > 0
			})
			r.lostOne()
		})
	}
}

// Its number may be another process's by now.
func TestAProcessThatHasHungUpIsNotToldByItsNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, stays := range []bool{true, false} {
		p, err := connect(path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.conn.Close()
		if !stays {
			p.conn.Close()
		}
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		found := byNumber(conn)
		if (found >= 0) != stays {
			t.Errorf("stays: %v, told: %d", stays, found)
		}
		if found >= 0 {
			found.Close()
		}
	}
}

func TestTheLedgersOfAProxyThatIsTurnedAwayAreNotEmptied(t *testing.T) {
	// The process is gone as far as the agent knows.
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	_ = cmd.Wait()
	gone := func(*net.UnixConn) descriptor {
		fd, err := unix.Dup(pidfd)
		if err != nil {
			return -1
		}
		return descriptor(fd)
	}
	complete := make(chan struct{})
	r := startWith(t, gone, complete)
	ledger := r.ledger()
	p, err := connect(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.conn.Close()
	if answer, _, err := p.ask(hello(storepb.Version_V1, 1), int(ledger.Fd())); err == nil {
		t.Fatalf("an agent that knows no pods yet answered %v", answer)
	}
	if lost := <-r.lost; len(lost) > 0 {
		t.Fatalf("lost %v: the pods are not known yet", lost)
	}
	r.stillOpen(ledger)
	// The agent knows the pods, and nobody has the ledger.
	close(complete)
	ledger.Close()
	r.connect()
	r.lostOne()
}

func TestAProxyIsToldThatItsLedgersKeepTheirLength(t *testing.T) {
	r := start(t)
	p, err := connect(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.conn.Close()
	answer, _, err := p.ask(hello(storepb.Version_V1, 0))
	if err != nil || !answer.GetAck().GetKeepsLength() {
		t.Fatalf("answered %v, %v", answer, err)
	}
}
