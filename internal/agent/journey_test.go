package agent

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
)

func TestAPodsWayThroughTheMeshAndBack(t *testing.T) {
	m := newMesh(t)
	m.reaches(Plain)
	olderOut, olderIn := m.talk(m.pod, meshPeer), m.talk(m.peer, meshPod)

	m.enrol(true)
	if p := m.reaches(Pending); !strings.Contains(p.Reason, "no node proxy") {
		t.Errorf("reason %q", p.Reason)
	}
	m.talk(m.pod, meshPeer).Close()

	proxy := startRelay(t, m.path("zds.sock"))
	p := m.reaches(Captured)
	eventually(t, "the engine knows", func() error { return is(m.annotation(), "enabled") })
	var got []string
	for _, c := range p.UnmeshedConnections {
		got = append(got, fmt.Sprint(c.Direction, " ", c.Local, " ", c.Remote))
		if !c.OpenedBefore.Equal(p.Since) {
			t.Errorf("opened before %v, captured %v", c.OpenedBefore, p.Since)
		}
	}
	want := []string{
		fmt.Sprint(diag.Inbound, " ", olderIn.RemoteAddr(), " ", olderIn.LocalAddr()),
		fmt.Sprint(diag.Outbound, " ", olderOut.LocalAddr(), " ", olderOut.RemoteAddr()),
	}
	// Local addresses order them, and the ephemeral port may be below or above.
	if diff := cmp.Diff(asSet(want), asSet(got)); diff != "" {
		t.Errorf("older connections:\n%s", diff)
	}
	m.goesOn(olderOut)
	m.goesOn(olderIn)
	if proxy.count() != 0 {
		t.Error("older connections went through the proxy")
	}
	meshedOut, meshedIn := m.talk(m.pod, meshPeer), m.talk(m.peer, meshPod)
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy, want 2", got)
	}
	olderIn.Close()
	eventually(t, "the closed connection is listed no more", func() error {
		s, err := m.status()
		if err == nil && len(s.Pods[0].UnmeshedConnections) != 1 {
			err = fmt.Errorf("%v", s.Pods[0].UnmeshedConnections)
		}
		return err
	})

	m.enrol(false)
	m.reaches(Releasing)
	eventually(t, "the engine knows", func() error { return is(m.annotation(), "disabled") })
	m.talk(m.pod, meshPeer).Close()
	m.talk(m.peer, meshPod).Close()
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy after the release", got-2)
	}
	// This proxy cuts what a pod has when it is taken back. The meshed connections live on nevertheless.
	eventually(t, "the agent waits for the meshed connections", func() error {
		p := m.reaches(Releasing)
		m.goesOn(meshedOut)
		m.goesOn(meshedIn)
		if !strings.Contains(p.Reason, "meshed connections") {
			return errors.New(p.Reason)
		}
		return nil
	})
	meshedOut.Close()
	meshedIn.Close()
	m.reaches(Plain)
	m.goesOn(olderOut)
	if mode, err := redirect.Observe(m.pod); err != nil || mode != redirect.Absent {
		t.Errorf("rules %v, %v", mode, err)
	}
}

func TestCapturedPodsOutliveAgentAndProxy(t *testing.T) {
	m := newMesh(t)
	proxy := startRelay(t, m.path("zds.sock"))
	m.enrol(true)
	m.reaches(Captured)
	meshed := m.talk(m.pod, meshPeer)

	// The agent ends, and comes back.
	intact := func(when string) {
		t.Helper()
		if changed, err := redirect.Apply(m.pod, redirect.Capturing, redirect.Settings{}); err != nil || changed {
			t.Errorf("%s the rules were not whole any more: %v", when, err)
		}
	}
	m.terminate()
	intact("without an agent")
	m.goesOn(meshed)
	m.talk(m.pod, meshPeer)
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy, want 2", got)
	}
	m.start()
	proxy.reconnect(m.path("zds.sock"))
	p := m.reaches(Captured)
	intact("with the next agent")
	if len(p.UnmeshedConnections) != 0 {
		t.Errorf("meshed connections are listed: %v", p.UnmeshedConnections)
	}
	eventually(t, "the proxy is known", func() error {
		s, err := m.status()
		if err == nil && !s.ProxyConnected {
			err = errors.New("no")
		}
		return err
	})
	m.goesOn(meshed)

	// The proxy ends: new connections fail, and never become plain.
	proxy.stop()
	eventually(t, "the agent notices", func() error {
		p := m.reaches(Captured)
		if !strings.Contains(p.Reason, "no node proxy") {
			return errors.New(p.Reason)
		}
		return nil
	})
	if c, err := netnstest.Dial(m.pod, "", meshPeer+appPort); err == nil {
		c.Close()
		t.Error("a connection of a captured pod went past the proxy")
	}
	if c, err := netnstest.Dial(m.peer, "", meshPod+appPort); err == nil {
		c.Close()
		t.Error("a connection to a captured pod went past the proxy")
	}
	next := startRelay(t, m.path("zds.sock"))
	eventually(t, "the new proxy has the pod", func() error { return is(m.reaches(Captured).Reason, "") })
	m.talk(m.pod, meshPeer)
	if got := next.count(); got != 1 {
		t.Errorf("%d connections through the new proxy, want 1", got)
	}
}

func TestAConnectionOpenedDuringEnrolmentEitherWayWorks(t *testing.T) {
	m := newMesh(t)
	startRelay(t, m.path("zds.sock"))
	stop, failures := make(chan struct{}), make(chan error, 1)
	var opened atomic.Int64
	go func() {
		defer close(failures)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, way := range []struct {
				from *netns.Namespace
				to   string
			}{{m.pod, meshPeer}, {m.peer, meshPod}} {
				if err := hello(way.from, way.to); err != nil {
					failures <- err
					return
				}
				opened.Add(1)
			}
		}
	}()
	// As many as show something, however busy the machine is.
	deadline := time.Now().Add(time.Minute)
	for times := 0; times < 3 || opened.Load() < 10 && time.Now().Before(deadline) && len(failures) == 0; times++ {
		m.enrol(true)
		m.reaches(Captured)
		m.enrol(false)
		m.reaches(Releasing)
	}
	close(stop)
	if err := <-failures; err != nil {
		t.Errorf("after %d connections: %v", opened.Load(), err)
	}
	if n := opened.Load(); n < 10 {
		t.Errorf("only %d connections were opened", n)
	}
}

func hello(from *netns.Namespace, to string) error {
	c, err := netnstest.Dial(from, "", to+appPort)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

func is(got, want string) error {
	if got != want {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}

func asSet(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}
