package api

import (
	"context"
	"encoding/json"
	"fmt"
)

// The severities of a finding.
const (
	FindingWarning = "warning" // the object can hardly do what its author meant
	FindingInfo    = "info"    // the object does as written, and the finding describes the effect
)

// Finding is one thing that the control plane's analysis says of an object that is valid.
type Finding struct {
	Object   Key    `json:"object"`
	Code     string `json:"code"`
	Severity string `json:"severity"`
	// State is the state of the object because of the finding: "ineffective", "refuses-all", "partial" or "dry-run"; empty if it is in force as it is written.
	State    string   `json:"state,omitempty"`
	Field    string   `json:"field,omitempty"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"`
	Pods     []string `json:"pods,omitempty"` // "namespace/name", the first of them
	MorePods int      `json:"morePods,omitempty"`
}

// String is the finding on one line, without its object: field: message; fix.
func (f Finding) String() string {
	return Problem{Field: f.Field, Message: f.Message, Fix: f.Fix}.String()
}

// Analysis asks the control plane for the findings about all objects.
func (c *Client) Analysis(ctx context.Context) ([]Finding, error) {
	page, err := c.ControlDebug(ctx, "debug/analysis")
	if err != nil {
		return nil, err
	}
	var said struct {
		Findings []Finding `json:"findings"`
	}
	if err := json.Unmarshal(page, &said); err != nil {
		return nil, fmt.Errorf("read the control plane's analysis: %w", err)
	}
	return said.Findings, nil
}
