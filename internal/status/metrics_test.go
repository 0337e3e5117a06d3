package status

import (
	"errors"
	"testing"
	"time"
)

func TestFlagsAreReadWhenTheyAreAskedFor(t *testing.T) {
	m := NewMetrics("1", time.Now)
	waits, leads := errors.New("waiting"), false
	m.RegisterReady(func() error { return waits })
	m.RegisterLeader(func() bool { return leads })
	is := func(name string, want float64) {
		t.Helper()
		families, err := m.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
				return
			}
		}
		t.Errorf("no %s", name)
	}
	is("lateen_control_ready", 0)
	is("lateen_control_leader", 0)
	waits, leads = nil, true
	is("lateen_control_ready", 1)
	is("lateen_control_leader", 1)
}
