package envoy

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	clientIdentity = "spiffe://cluster.local/ns/default/sa/client"
	echoIdentity   = "spiffe://cluster.local/ns/default/sa/echo"
)

func echoService() Service {
	return Service{
		Name: "default/echo", Address: netip.MustParseAddr("10.96.0.7"), Port: 8080,
		Endpoints:  []netip.AddrPort{netip.MustParseAddrPort("10.244.2.3:8080"), netip.MustParseAddrPort("10.244.2.4:8080")},
		Identities: []string{echoIdentity},
	}
}

func pod(name string) Pod {
	return Pod{Name: name, Dir: "/run/pair", AccessLog: "/run/pair/access.log"}
}

func TestBootstrapOfAPair(t *testing.T) {
	client, echo, closed := pod("default/client-1"), pod("default/echo-1"), pod("default/closed-1")
	other := echoService()
	other.Name, other.Address, other.Port = "default/other", netip.MustParseAddr("10.96.0.8"), 80
	other.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.244.2.5:8080")}
	client.Services = []Service{echoService(), other}
	echo.Callers = []string{clientIdentity}
	for name, p := range map[string]Pod{"client": client, "echo": echo, "closed": closed} {
		got, err := Bootstrap(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the configuration is not that of %s (run with -update and read the difference); got:\n%s", name, golden, got)
		}
	}
}

func TestBootstrapRefusesWhatCouldNotWork(t *testing.T) {
	with := func(change func(*Service)) func(*Pod) {
		return func(p *Pod) { change(&p.Services[0]) }
	}
	for want, change := range map[string]func(*Pod){
		"name: write namespace/pod":       func(p *Pod) { p.Name = "client" },
		"give absolute paths":             func(p *Pod) { p.Dir = "keys" },
		"callers: \"client\" is no":       func(p *Pod) { p.Callers = []string{"client"} },
		"give it a name, an IPv4 address": with(func(s *Service) { s.Address = netip.MustParseAddr("fd00::7") }),
		"endpoints []: give at least":     with(func(s *Service) { s.Endpoints = nil }),
		"10.0.0.1:0]: give at least":      with(func(s *Service) { s.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:0")} }),
		"without an identity":             with(func(s *Service) { s.Identities = nil }),
		"identities: \"spiffe://\" is no": with(func(s *Service) { s.Identities = []string{"spiffe://"} }),
		"is taken by another service": func(p *Pod) {
			second := echoService()
			second.Name = "default/second"
			p.Services = append(p.Services, second)
		},
	} {
		p := pod("default/client-1")
		p.Services = []Service{echoService()}
		if _, err := Bootstrap(p); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if _, err := Bootstrap(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestArgumentsGiveTwoWorkers(t *testing.T) {
	line := strings.Join(Arguments("/run/pair/client.json"), " ")
	for _, want := range []string{"--config-path /run/pair/client.json", "--concurrency 2", "--disable-hot-restart"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
