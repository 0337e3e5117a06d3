package local

import (
	"context"
	"fmt"
	"time"
)

// program is what a daemon runs, and where.
type program struct {
	path    string
	args    []string // behind the program's name
	netns   string   // empty: the fabric's
	ztunnel bool     // the program is an unmodified ztunnel, not Lateen's own proxy
	sure    bool     // it is known to have no socket for its pages; one given at start may be Lateen's own under another name
}

func (d *daemon) running() program {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.program
}

// program is what the node's proxy is now.
func (n *node) program() program {
	if n.proxy == nil {
		return program{}
	}
	return n.proxy.running()
}

// successor is the program that replaces the node's proxy: binary is empty for the same again.
func (n *node) successor(binary string, ztunnel bool) program {
	next := n.program()
	if binary == "" {
		return next
	}
	next.path, next.ztunnel, next.sure, next.args = binary, ztunnel, ztunnel, []string{"node"}
	if ztunnel {
		next.args = nil
	}
	return next
}

// occupied says whether a process beside the daemon's is in a network.
func (d *daemon) occupied(netns string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for l := range d.beside {
		if l.program.netns == netns {
			return true
		}
	}
	return false
}

// answers waits until ztunnel says on its port that it is ready; it has no other way.
func (p program) answers(ctx context.Context, l *launched, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		attempt, cancel := context.WithTimeout(ctx, pollTimeout)
		_, err := get(attempt, p.dial(proxyReadyURL), "http://"+proxyReadyURL+"/healthz/ready")
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("the new process was not ready after %s: %w", patience, err)
		}
		select {
		case <-l.Done():
			return fmt.Errorf("the new process ended before it was ready: it %s", l.Exit())
		case <-time.After(unreadyPoll):
		}
	}
}
