package agent

import (
	"flag"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"lateen.dev/lateen/internal/agent/cni"
)

// Reference is what the agent can be told, and a registry in which each of its metrics has a series, for the pages that list
// them all.
func Reference() (*flag.FlagSet, *prometheus.Registry) {
	m := NewMetrics()
	// A metric with labels shows only once it has a series.
	m.observe(nil, 0, 0, false)
	m.Sent("add", "acknowledged")
	m.Answered(cni.Add, cni.Done, 0)
	return new(settings).flags(io.Discard), m.registry
}
