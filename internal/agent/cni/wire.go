// Package cni captures pods at birth: the CNI plugin that a runtime calls before a pod's first process starts, and the
// agent's socket that it asks. It decides alone only while no agent answers, and it never captures anything itself.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Op is what a runtime wants to know or to have done.
type Op string

// The operations.
const (
	Add   Op = "add"
	Del   Op = "del"
	Check Op = "check"
)

// Request is what the plugin tells the agent of a pod's sandbox.
type Request struct {
	Op        Op     `json:"op"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Sandbox is the runtime's name of the pod's sandbox; a pod that gets another one is asked about again.
	Sandbox string `json:"sandbox"`
	// NetNS is where its network namespace is mounted; it may be empty when the sandbox goes.
	NetNS string `json:"netns,omitempty"`
	// Addresses that the plugins before this one gave it.
	Addresses []string `json:"addresses,omitempty"`
}

// Verdict is how a request ends.
type Verdict string

// The verdicts.
const (
	// Working: the pod is to be captured, and the agent is at it. Another answer follows.
	Working Verdict = "working"
	// Done: the pod is captured, or whatever else was asked is done.
	Done Verdict = "done"
	// Outside: the pod is not to be captured.
	Outside Verdict = "outside"
	// Failed: the pod is to be captured and is not.
	Failed Verdict = "failed"
	// Unknown: the agent cannot tell whether the pod is to be captured.
	Unknown Verdict = "unknown"
)

// Answer is what the agent says.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
}

// maxMessage bounds a request and an answer: far more than either needs.
const maxMessage = 64 << 10

// ask puts a request to the agent. The first word must come within first, the last one before ctx ends. With an error
// the answer is the last that came: Working if the agent fell silent over a pod that it was to capture.
func ask(ctx context.Context, socket string, r Request, first time.Duration) (Answer, error) {
	dial, cancel := context.WithTimeout(ctx, first)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(dial, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("ask the agent: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(first)); err != nil {
		return Answer{}, err
	}
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return Answer{}, fmt.Errorf("ask the agent: %w", err)
	}
	answers := json.NewDecoder(io.LimitReader(conn, maxMessage))
	var said Answer
	for {
		var next Answer
		if err := answers.Decode(&next); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("it closed the connection without an answer")
			}
			return said, fmt.Errorf("ask the agent: %w", err)
		}
		if next.Verdict == Unknown && said.Verdict == Working {
			// An agent that ends may still say so; what it knew of the pod holds.
			return said, fmt.Errorf("ask the agent: it was at it, and cannot tell any more: %s", next.Reason)
		}
		said = next
		if said.Verdict != Working {
			return said, nil
		}
		// The deadline is removed: from here on only ctx bounds the call.
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return said, err
		}
	}
}
