package agent

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
)

// A status tells of all pods, however long it takes to look at one of them, and looks do not pile up there.
func TestAStatusWaitsForNoPodForLong(t *testing.T) {
	r, release := newTarpit()
	defer release()
	a := r.start(t)
	older := diag.Socket{Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort("10.0.0.2:80"), State: diag.Established, Cookie: 7}
	var hangs atomic.Bool
	var looks atomic.Int32
	held := make(map[*netns.Namespace]string)
	if err := a.ask(t.Context(), func() {
		a.capturer.redirect = &slowOnce{tarpit: r, name: map[*netns.Namespace]string{}, first: map[string]bool{"": true}}
		a.capturer.networks.open = func(path string) (*netns.Namespace, error) {
			ns, err := netns.New()
			r.mu.Lock()
			defer r.mu.Unlock()
			held[ns] = path
			return ns, err
		}
		a.capturer.list = func(ns *netns.Namespace) (diag.Listing, error) {
			r.mu.Lock()
			path := held[ns]
			r.mu.Unlock()
			if hangs.Load() && path == "/stuck0" {
				looks.Add(1)
				<-r.stuck[nil]
			}
			return diag.Listing{Sockets: []diag.Socket{older}, Own: []netip.Addr{older.Local.Addr()}}, nil
		}
	}); err != nil {
		t.Fatal(err)
	}
	r.deliver(podsOf(1, 2))
	r.await(t, "all are captured", func() bool { return len(r.reports) == 3 })
	hangs.Store(true)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		s, err := a.Status(ctx)
		cancel()
		if err != nil || len(s.Pods) != 3 {
			t.Fatalf("%d pods, %v", len(s.Pods), err)
		}
		for _, p := range s.Pods {
			if n := len(p.UnmeshedConnections); p.Name == "stuck0" && (n != 0 || !strings.Contains(p.Reason, "takes long")) || p.Name != "stuck0" && n != 1 {
				t.Errorf("%s has %d connections from before, %q", p.Name, n, p.Reason)
			}
		}
	}
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks at the pod at the same time", n)
	}
}
