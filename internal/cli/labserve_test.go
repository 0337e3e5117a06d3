package cli

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestWhatTheLabsServerMayBeAskedFor(t *testing.T) {
	for _, c := range []struct {
		listen string
		hosts  []string
		want   []string
	}{
		{"127.0.0.1:8088", nil, nil},
		{":8088", nil, nil},
		{"[::1]:8088", []string{"LAB.example."}, []string{"lab.example"}},
		{"box.example:8088", []string{"10.0.0.5"}, []string{"10.0.0.5", "box.example"}},
	} {
		if got, err := (serveFlags{listen: c.listen, hosts: c.hosts}).names(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %v: %v %v, want %v", c.listen, c.hosts, got, err, c.want)
		}
	}
	for _, host := range []string{"0.0.0.0", "::", "::ffff:127.0.0.1", ""} {
		if r := newFake(t).run("", "lab", "serve", "--host", host, "--results", t.TempDir()); r.code != ExitUsage || !strings.Contains(r.stderr, "--host") {
			t.Errorf("--host %q: exit code %d: %s", host, r.code, r.stderr)
		}
	}
	for ip, want := range map[string]string{"127.0.0.1": "127.0.0.1:80", "0.0.0.0": "localhost:80", "::": "localhost:80", "::1": "[::1]:80"} {
		if got := reachable(&net.TCPAddr{IP: net.ParseIP(ip), Port: 80}); got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
	}
}
