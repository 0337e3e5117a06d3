package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
)

// replacer puts another process in the place of a node's proxy. Its fields never change; each daemon's own lock guards its processes.
type replacer struct {
	state *state
	dir   runDir
	log   *slog.Logger
}

func newReplacer(s *state, dir runDir, log *slog.Logger) *replacer {
	return &replacer{state: s, dir: dir, log: log}
}

// serve puts another process in the place of a node's proxy and streams how far it is.
func (p *replacer) serve(w http.ResponseWriter, r *http.Request) {
	n, err := p.state.nodes.of(r)
	if err != nil {
		fail(w, err)
		return
	}
	var in api.ReplaceRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if in.Binary != "" {
		if err := executable(in.Binary); err != nil {
			fail(w, &api.Error{Code: http.StatusBadRequest, Message: "use another node proxy: " + err.Error(), Fix: "name an executable file by its absolute path"})
			return
		}
	}
	if in.Ztunnel && in.Binary == "" {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "use an unmodified ztunnel: no executable is named", Fix: "name it with --ztunnel"})
		return
	}
	limit := time.Duration(in.DrainSeconds * float64(time.Second))
	what, err := p.place(n, n.program(), n.successor(in.Binary, in.Ztunnel))
	if err != nil {
		fail(w, &api.Error{Code: http.StatusConflict, Message: "the node proxy of " + n.name + " was not replaced: " + err.Error()})
		return
	}
	var env []string
	if what.ztunnel { // it hears of its drain at its start and never again
		env = []string{fmt.Sprintf("CONNECTION_TERMINATION_DEADLINE=%dms", limit.Milliseconds())}
	}
	enc := json.NewEncoder(w)
	flush := http.NewResponseController(w)
	say := func(ev api.Event) {
		_ = enc.Encode(ev) // the asker may be gone
		_ = flush.Flush()
	}
	say(api.Event{Phase: "successor", State: api.EventStarted, Message: "starting another node proxy on " + n.name})
	began := time.Now()
	old, now, err := n.proxy.replace(r.Context(), what, env, readyTimeout)
	if err != nil {
		p.log.Warn("a node proxy was not replaced", "node", n.name, "err", err)
		say(api.Event{Phase: "successor", State: api.EventFailed, Message: "not replaced",
			Error: "the node proxy of " + n.name + " was not replaced: " + err.Error(), Fix: "the one before goes on as if nothing had been; the whole log is " + n.proxy.logPath})
		return
	}
	p.log.Info("a node proxy was replaced", "node", n.name, "pid", now.PID, "binary", in.Binary, "took", time.Since(began).Round(time.Millisecond))
	say(api.Event{Phase: "successor", State: api.EventDone, Message: fmt.Sprintf("%s: the new proxy serves", n.name)})
	if old == nil {
		return
	}
	say(api.Event{Phase: "drain", State: api.EventStarted, Message: n.name + ": the one before stops accepting"})
	open := "its connections"
	if old.program.ztunnel {
		_ = old.Signal(syscall.SIGTERM)
	} else {
		// The pages on the socket are the old process's until it drains. Without an answer the plain way still works, with its
		// own deadline.
		open = connections(r.Context(), n.ownPages)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), pollTimeout)
		defer cancel()
		if err := askToQuit(ctx, n.ownPages, limit); err != nil {
			p.log.Warn("ask a node proxy to drain; sending a signal", "node", n.name, "err", err)
			_ = old.Signal(syscall.SIGTERM)
		}
	}
	go n.proxy.handOver(n.admin, old.PID, old.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.proxy.drain(old, limit)
	}()
	if in.Wait {
		<-done
		say(api.Event{Phase: "drain", State: api.EventDone, Message: n.name + ": the one before has ended"})
		return
	}
	say(api.Event{Phase: "drain", State: api.EventDone, Message: fmt.Sprintf("%s: the one before stopped accepting; %s may go on there for up to %s", n.name, open, limit)})
}

// place finds a network for a successor. Two of Lateen's own share their ports. Where one of the two is ztunnel, whose ports for
// pages nobody else can have, they take turns: the node's network, and a room beside it.
func (p *replacer) place(n *node, now, next program) (program, error) {
	if !now.ztunnel && !next.ztunnel {
		return next, nil
	}
	next.netns = n.NetNS
	if now.netns == n.NetNS {
		next.netns = p.dir.netns(n.name + "-room")
		if err := fabric.AddRoom(n.Node, next.netns); err != nil {
			return next, fmt.Errorf("make a network beside that of %s: %w", n.name, err)
		}
	}
	if next.ztunnel && next.netns == n.NetNS && p.state.hostsPods(n) {
		return next, errors.New("the turn of ztunnel is in the node's own network, where a pod with hostNetwork could end it: take such pods off the node, or replace it by Lateen's own first")
	}
	if n.proxy.occupied(next.netns) {
		return next, errors.New("an earlier process still drains where the new one would go: wait until it has ended, or give it less time with --drain")
	}
	return next, nil
}

// connections says how many connections a node's proxy has, in words.
func connections(ctx context.Context, pages dialer) string {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	page, err := get(ctx, pages, "http://proxy/metrics")
	if err != nil {
		return "its connections"
	}
	total := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "lateen_worker_connections{") {
			var count int
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &count); err == nil {
				total += count
			}
		}
	}
	if total == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", total)
}

// askToQuit tells a node's proxy to drain, with a limit.
func askToQuit(ctx context.Context, pages dialer, limit time.Duration) error {
	_, err := ask(ctx, pages, http.MethodPost, fmt.Sprintf("http://proxy/quitquitquit?deadline=%dms", limit.Milliseconds()))
	return err
}
