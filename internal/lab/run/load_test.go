package run

import (
	"testing"

	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
)

// The protocol of a load is what its URL and flags have the generator speak.
func TestLoadsAreDescribedByTheirProtocol(t *testing.T) {
	rate := 10.0
	for _, tt := range []struct {
		url, want string
		flags     []string
	}{
		{"http://echo:8080/", "http/1.1", nil},
		{"http://echo:8080/", "h2c", []string{"--streams", "4", "--http2"}},
		{"https://echo:8443/", "http/1.1", nil},
		{"https://echo:8443/", "h2", []string{"--http2"}},
		{"grpc://echo:8080", "grpc", nil},
		{"grpcs://echo:8443", "grpc", []string{"--streaming"}},
		{"tcp://echo:9090", "tcp", []string{"--payload-size", "64"}},
	} {
		got := described(scenario.Load{URL: tt.url, QPS: &rate, Connections: 1, Flags: tt.flags}, 1, 0)
		if got.Protocol != tt.want {
			t.Errorf("%s with %v: %s, want %s", tt.url, tt.flags, got.Protocol, tt.want)
		}
	}
}

// A scenario that nobody shortens has the rounds that its verdicts need, with some to spare for blocks that are rejected.
func TestScenariosHaveRoundsEnoughForVerdicts(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Control != nil {
			continue // judged against fixed numbers
		}
		if least := stats.MinPairs(len(s.Metrics)); s.Rounds <= least {
			t.Errorf("%s: %d rounds for %d metrics; use more than %d", s.Name, s.Rounds, len(s.Metrics), least)
		}
	}
}
