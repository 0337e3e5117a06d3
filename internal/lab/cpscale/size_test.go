package cpscale_test

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/cpscale"
)

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	if err := small.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		change func(*cpscale.Size)
		says   string
	}{
		{func(s *cpscale.Size) { s.Services = 0 }, "services: 0: use"},
		{func(s *cpscale.Size) { s.Pods = 11 }, "pods: 11: use 12, one for each service"},
		{func(s *cpscale.Size) { s.Proxies = 10_001 }, "proxies: 10001: use"},
		{func(s *cpscale.Size) { s.Rest = 0 }, "rest: 0: use"},
		{func(s *cpscale.Size) { s.Rates = nil }, "rates: name"},
		{func(s *cpscale.Size) { s.Rates = []float64{5, 0} }, "rates: 0: use"},
		{func(s *cpscale.Size) { s.Rates = []float64{5, 20, 5} }, "rates: 5 is there twice"},
	} {
		s := small
		tt.change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q is not said: %v", tt.says, err)
		}
	}
}
