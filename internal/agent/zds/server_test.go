package zds

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	zdspb "lateen.dev/lateen/internal/gen/zds"
)

func workload(t *testing.T, uid string) Workload {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return Workload{UID: uid, Namespace: "default", Name: "pod-" + uid, ServiceAccount: "sa-" + uid, NetNS: ns}
}

func TestSendsASnapshotAndThenChanges(t *testing.T) {
	s, path := serve(t, Options{})
	a, b := workload(t, "a"), workload(t, "b")
	s.Put(a)
	s.Complete()
	p := connect(t, path)
	if got := p.accept("add a default pod-a sa-a"); got != a.NetNS.ID().Inode {
		t.Errorf("the namespace %d came instead of %d", got, a.NetNS.ID().Inode)
	}
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "accepted", accepted)
	p.silent()

	s.Put(b)
	p.accept("add b")
	awaitStatus(t, s, "b", "accepted", accepted)
	s.Drop("a")
	p.expect("del a")
	if status := s.Status("a"); !status.Known || status.Accepted {
		t.Errorf("deletion not acknowledged, but %+v", status)
	}
	p.acknowledge("")
	awaitStatus(t, s, "a", "gone", gone)
	p.silent()
}

func TestWaitsForEachAnswer(t *testing.T) {
	s, path := serve(t, Options{})
	s.Put(workload(t, "a"))
	s.Put(workload(t, "b"))
	s.Complete()
	p := connect(t, path)
	p.expect("add")
	p.silent()
	p.acknowledge("")
	p.expect("add")
	p.silent()
}

func TestPutTwiceIsSentOnce(t *testing.T) {
	s, path := serve(t, Options{})
	s.Complete()
	p := connect(t, path)
	p.accept("snapshot_sent")
	a := workload(t, "a")
	for range 3 {
		s.Put(a)
	}
	p.accept("add a")
	s.Put(a)
	p.silent()
}

// A proxy that hears "that was all" before the agent knows its pods would drop them.
func TestSaysNothingBeforeThePodsAreKnown(t *testing.T) {
	s, path := serve(t, Options{})
	p := connect(t, path)
	p.silent()
	if s.Connections() != 0 {
		t.Error("a proxy that may not be told anything counts as connected")
	}
	s.Put(workload(t, "a"))
	s.Complete()
	p.accept("add a")
	p.accept("snapshot_sent")
}

func TestTellsAReconnectedProxyEverythingAgain(t *testing.T) {
	s, path := serve(t, Options{})
	s.Put(workload(t, "a"))
	s.Complete()
	p := connect(t, path)
	p.accept("add a")
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "accepted", accepted)
	p.conn.Close()
	awaitStatus(t, s, "a", "unknown to all", gone)
	if s.Status("a").Connected {
		t.Error("still connected")
	}
	p = connect(t, path)
	p.accept("add a")
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "accepted", accepted)
}

func TestAddsGoToTheNewestAndDeletesToAll(t *testing.T) {
	s, path := serve(t, Options{})
	s.Put(workload(t, "a"))
	s.Complete()
	older := connect(t, path)
	older.accept("add a")
	older.accept("snapshot_sent")
	newer := connect(t, path)
	newer.expect("add a")
	if status := s.Status("a"); status.Accepted {
		t.Error("accepted, though the newest proxy has not answered")
	}
	newer.acknowledge("")
	newer.accept("snapshot_sent")

	s.Put(workload(t, "b"))
	newer.accept("add b")
	awaitStatus(t, s, "b", "accepted", accepted)
	older.silent()

	s.Drop("a")
	newer.accept("del a")
	older.expect("del a")
	if !s.Status("a").Known {
		t.Error("counts as gone, though one proxy still has it")
	}
	older.acknowledge("")
	awaitStatus(t, s, "a", "gone", gone)

	// The newest goes: the other one takes over what it was not told of.
	newer.conn.Close()
	older.accept("add b")
	awaitStatus(t, s, "b", "accepted", accepted)
}

func TestARefusedPodIsOfferedAgain(t *testing.T) {
	s, path := serve(t, Options{RetryMin: 20 * time.Millisecond})
	s.Put(workload(t, "a"))
	s.Complete()
	p := connect(t, path)
	p.expect("add a")
	p.acknowledge("port 15001 is in use")
	// The others do not wait for it.
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "refused", refused)
	if got := s.Status("a").Refusal; got != "port 15001 is in use" {
		t.Errorf("reason %q", got)
	}
	p.expect("add a")
	p.acknowledge("port 15001 is in use")
	p.accept("add a")
	awaitStatus(t, s, "a", "accepted", accepted)
	if got := s.Status("a").Refusal; got != "" {
		t.Errorf("still says %q", got)
	}
}

func TestARefusedPodThatIsDroppedIsTakenBack(t *testing.T) {
	s, path := serve(t, Options{RetryMin: time.Hour})
	s.Put(workload(t, "a"))
	s.Complete()
	p := connect(t, path)
	p.expect("add a")
	p.acknowledge("no")
	p.accept("snapshot_sent")
	s.Drop("a")
	// A proxy may go on trying by itself.
	p.accept("del a")
	awaitStatus(t, s, "a", "gone", gone)
}

func TestSlowProxiesAreWaitedForAndSilentOnesDropped(t *testing.T) {
	s, path := serve(t, Options{AckTimeout: 6 * time.Second})
	s.Put(workload(t, "a"))
	s.Complete()
	p := connect(t, path)
	p.expect("add a")
	time.Sleep(300 * time.Millisecond)
	p.acknowledge("")
	awaitStatus(t, s, "a", "accepted", accepted)
	p.expect("snapshot_sent")
	p.ended()
	awaitStatus(t, s, "a", "unknown to all", gone)
}

func TestAProxyThatNeverSaysHelloIsDropped(t *testing.T) {
	s, path := serve(t, Options{AckTimeout: 100 * time.Millisecond})
	s.Complete()
	dial(t, path).ended()
}

func TestBrokenProtocolEndsTheConnection(t *testing.T) {
	tests := map[string]func(*proxy){
		"speaks unasked": func(p *proxy) {
			p.accept("add a")
			p.accept("snapshot_sent")
			p.acknowledge("")
		},
		"answers twice": func(p *proxy) {
			p.expect("add a")
			p.acknowledge("")
			p.acknowledge("")
			if request, _, err := p.read(patience); err == nil && request == "snapshot_sent" {
				// It went out before the second answer was seen, which then stands for its own. The next is too much.
				p.acknowledge("")
			}
		},
		"answers garbage": func(p *proxy) {
			p.expect("add a")
			_, _ = p.conn.Write([]byte("\xff\xff\xff"))
		},
		"answers nothing": func(p *proxy) {
			p.expect("add a")
			p.say(&zdspb.WorkloadResponse{})
		},
		"answers at length": func(p *proxy) {
			p.expect("add a")
			p.acknowledge(strings.Repeat("x", maxMessage))
		},
	}
	for name, misbehave := range tests {
		t.Run(name, func(t *testing.T) {
			s, path := serve(t, Options{})
			s.Put(workload(t, "a"))
			s.Complete()
			p := connect(t, path)
			misbehave(p)
			p.ended()
			// And the next one is served.
			next := connect(t, path)
			next.accept("add a")
		})
	}
}

func TestRefusesVersionsItDoesNotSpeak(t *testing.T) {
	s, path := serve(t, Options{})
	s.Complete()
	for _, hello := range []string{"", "\x08\x02", "\xff"} {
		p := dial(t, path)
		if _, err := p.conn.Write([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		p.ended()
	}
}

func TestAPodWhoseNamespaceIsOutOfReachIsKept(t *testing.T) {
	s, path := serve(t, Options{})
	a := workload(t, "a")
	unreachable := a
	unreachable.NetNS = nil
	s.Put(unreachable)
	s.Complete()
	p := connect(t, path)
	p.accept("keep a")
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "accepted", accepted)
	// Once it can be opened, the proxy learns; it ignores what it has, and gets what it lost.
	s.Put(a)
	p.accept("add a")
	awaitStatus(t, s, "a", "accepted", accepted)
	s.Drop("a")
	p.accept("del a")
}

func TestANewNamespaceReplacesTheOld(t *testing.T) {
	s, path := serve(t, Options{})
	a := workload(t, "a")
	s.Put(a)
	s.Complete()
	p := connect(t, path)
	p.accept("add a")
	p.accept("snapshot_sent")
	b := workload(t, "a")
	s.Put(b)
	p.accept("del a")
	if got := p.accept("add a"); got != b.NetNS.ID().Inode {
		t.Errorf("namespace %d, want %d", got, b.NetNS.ID().Inode)
	}
	awaitStatus(t, s, "a", "accepted", accepted)
}

func TestAClosedNamespaceDoesNotEndTheConnection(t *testing.T) {
	s, path := serve(t, Options{})
	a := workload(t, "a")
	a.NetNS.Close()
	s.Put(a)
	s.Put(workload(t, "b"))
	s.Complete()
	p := connect(t, path)
	p.accept("add b")
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "refused", refused)
}

func TestAPodWithTooLongANameIsRefusedAlone(t *testing.T) {
	s, path := serve(t, Options{})
	a := workload(t, "a")
	a.Name = strings.Repeat("n", maxMessage)
	s.Put(a)
	s.Put(workload(t, "b"))
	s.Complete()
	p := connect(t, path)
	p.accept("add b")
	p.accept("snapshot_sent")
	awaitStatus(t, s, "a", "refused", refused)
}

func TestOnlyRootReachesTheSocketAndItOutlivesTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zds.sock")
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := Listen(path, Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Serve(ctx) }()
		p := connect(t, path)
		cancel()
		p.ended()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
}

func TestManyPodsComeAndGoWhileProxiesDo(t *testing.T) {
	s, path := serve(t, Options{})
	s.Complete()
	shared := workload(t, "")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 200 {
				w := shared
				w.UID = fmt.Sprintf("%d-%d", i, n%10)
				if n%3 == 2 {
					s.Drop(w.UID)
				} else {
					s.Put(w)
				}
				s.Status(w.UID)
			}
		})
	}
	for range 3 {
		p := connect(t, path)
		for range 20 {
			if _, _, err := p.read(patience); err != nil {
				t.Fatal(err)
			}
			p.acknowledge("")
		}
		p.conn.Close()
	}
	all.Wait()
	// A proxy that stays learns exactly what stands in the end.
	p := connect(t, path)
	told := map[string]bool{}
	for {
		request, _, err := p.read(patience)
		if err != nil {
			t.Fatal(err)
		}
		p.acknowledge("")
		fields := strings.Fields(request)
		switch fields[0] {
		case "add":
			told[fields[1]] = true
		case "del":
			delete(told, fields[1])
		case "snapshot_sent":
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(told) != len(s.desired) {
				t.Errorf("told of %d pods, want %d", len(told), len(s.desired))
			}
			for uid := range s.desired {
				if !told[uid] {
					t.Errorf("not told of %s", uid)
				}
			}
			return
		}
	}
}
