package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/status"
)

// Reference is the registry of a control plane in which each metric has a series, for the page that lists them all.
func Reference() *prometheus.Registry {
	m := status.NewMetrics("0", func() time.Time { return time.Time{} })
	none := func() float64 { return 0 }
	m.RegisterState(none, none, none, func(string) float64 { return 0 })
	m.RegisterReady(func() error { return nil })
	m.RegisterLeader(func() bool { return false })
	registerAuthority(m.Registry, unsigned{})
	m.RegisterReplicas(none, none)
	m.RegisterSettings(none)
	m.StatusWritten("AuthorizationPolicy", "written")
	// A metric with labels shows only once it has a series.
	m.Connected(0)
	m.Sent(resourcekind.Address, 0, 0)
	m.Settled(resourcekind.Address, time.Second, true)
	m.Refused("unauthenticated")
	m.Event("pods")
	m.Following("pods", true)
	m.Crowded("proxies")
	m.Crowded("pages")
	return m.Registry
}

// unsigned is a CA that is only looked at.
type unsigned struct{ authority }

func (unsigned) Status() ca.Status { return ca.Status{} }
