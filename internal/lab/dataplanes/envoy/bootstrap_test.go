package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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

func tcpService() Service {
	return Service{
		TCP: true, Name: "default/store", Address: netip.MustParseAddr("10.96.0.9"), Port: 90,
		Endpoints:  []netip.AddrPort{netip.MustParseAddrPort("10.244.2.3:9090")},
		Identities: []string{echoIdentity},
	}
}

func pod(name string) Pod {
	return Pod{Name: name, Dir: "/run/pair", Settings: Settings{Protocol: HTTP2}}
}

func TestBootstrapOfAPair(t *testing.T) {
	client, echo, closed := pod("default/client-1"), pod("default/echo-1"), pod("default/closed-1")
	other := echoService()
	other.Name, other.Address, other.Port = "default/other", netip.MustParseAddr("10.96.0.8"), 80
	other.Endpoints = []netip.AddrPort{netip.MustParseAddrPort("10.244.2.5:8080")}
	client.Services = []Service{echoService(), other}
	old := pod("default/client-1")
	old.Protocol, old.Services = HTTP1, []Service{echoService()}
	balanced := pod("default/closed-1")
	balanced.ExactBalance = true
	echo.Admits = []Rule{{Name: "callers", Callers: []string{clientIdentity}}}
	ruled := pod("default/ruled-1")
	ruled.Admits = []Rule{
		{Name: "one", Callers: []string{clientIdentity, echoIdentity}, Ports: []uint16{8080, 8081}},
		{Name: "two", Callers: []string{echoIdentity}},
	}
	asker := pod("default/asker-1")
	asker.Services = []Service{echoService(), tcpService()}
	store := pod("default/store-1")
	store.TCP, store.Admits = []uint16{9090, 9091}, ruled.Admits
	for name, p := range map[string]Pod{
		"client": client, "echo": echo, "closed": closed, "http1": old, "ruled": ruled, "balanced": balanced, "tcp-client": asker, "tcp-server": store,
	} {
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

// What is carried without HTTP is no less protected: it leaves the client by mutual TLS alone, and reaches the server's application
// only with a certificate and by a rule.
func TestBytesAreNeverCarriedInTheOpen(t *testing.T) {
	asker, store := pod("default/asker-1"), pod("default/store-1")
	asker.Services = []Service{tcpService()}
	store.TCP = []uint16{9090}
	store.Admits = []Rule{{Name: "callers", Callers: []string{clientIdentity}}}
	clusters := map[string]int{}
	for _, c := range chainsOf(t, asker, "outbound") {
		clusters[c.Filters[0].Typed.Cluster]++
		if c.Match.Port != 90 || len(c.Filters) != 1 || c.Filters[0].Typed.Type != typeTCPProxy {
			t.Errorf("outbound: the chain %+v carries no bytes to port 90", c)
		}
	}
	if name := tcpService().cluster(); !reflect.DeepEqual(clusters, map[string]int{name: 1}) {
		t.Errorf("outbound: bytes go to %v, want %s", clusters, name)
	}
	c := asker.cluster(tcpService())
	if socket := fmt.Sprint(c["transport_socket"]); !strings.Contains(socket, typeUpstreamTLS) || !strings.Contains(socket, CertificateFile) || !strings.Contains(socket, echoIdentity) {
		t.Errorf("the cluster's socket %s is no mutual TLS with %s", socket, echoIdentity)
	}
	var ports []uint16
	for _, c := range chainsOf(t, store, "inbound") {
		ports = append(ports, c.Match.Port)
		if c.Socket.Typed.Type != typeDownstreamTLS || !c.Socket.Typed.Required {
			t.Errorf("inbound: the chain of port %d takes connections without a certificate", c.Match.Port)
		}
		if c.Match.Port != 9090 {
			continue
		}
		if len(c.Filters) != 2 || c.Filters[0].Typed.Type != typeNetworkRBAC || c.Filters[1].Typed.Type != typeTCPProxy {
			t.Errorf("inbound: the chain %+v is not RBAC and then bytes", c)
		} else if rules := fmt.Sprint(c.Filters[0].Typed.Rules); !strings.Contains(rules, "ALLOW") || !strings.Contains(rules, clientIdentity) {
			t.Errorf("inbound: the rules %s do not allow %s", rules, clientIdentity)
		}
	}
	if !slices.Equal(ports, []uint16{0, 9090}) {
		t.Errorf("inbound: chains for the ports %v, want one for 9090 and one for all others", ports)
	}
}

// A filterChain is what the tests read of one.
type filterChain struct {
	Match struct {
		Port uint16 `json:"destination_port"`
	} `json:"filter_chain_match"`
	Filters []struct {
		Typed struct {
			Type    string `json:"@type"`
			Cluster string `json:"cluster"`
			Rules   any    `json:"rules"`
		} `json:"typed_config"`
	} `json:"filters"`
	Socket struct {
		Typed struct {
			Type     string `json:"@type"`
			Required bool   `json:"require_client_certificate"`
		} `json:"typed_config"`
	} `json:"transport_socket"`
}

// chainsOf are those of a listener, without the one for what nothing is known of.
func chainsOf(t *testing.T, p Pod, listener string) []filterChain {
	t.Helper()
	text, err := Bootstrap(p)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Static struct {
			Listeners []struct {
				Name   string        `json:"name"`
				Chains []filterChain `json:"filter_chains"`
			} `json:"listeners"`
		} `json:"static_resources"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Static.Listeners {
		if l.Name == listener {
			return l.Chains
		}
	}
	t.Fatalf("there is no listener %s", listener)
	return nil
}

func TestBootstrapRefusesWhatCouldNotWork(t *testing.T) {
	with := func(change func(*Service)) func(*Pod) {
		return func(p *Pod) { change(&p.Services[0]) }
	}
	for want, change := range map[string]func(*Pod){
		"name: write namespace/pod":         func(p *Pod) { p.Name = "client" },
		"give an absolute path":             func(p *Pod) { p.Dir = "keys" },
		"path of at most 96 bytes":          func(p *Pod) { p.Dir = "/" + strings.Repeat("k", 96) },
		"use HTTP/1.1 or HTTP/2":            func(p *Pod) { p.Protocol = "SPDY" },
		"callers: \"client\" is no":         func(p *Pod) { p.Admits = []Rule{{Name: "r", Callers: []string{"client"}}} },
		"rule \"r\": it names no caller":    func(p *Pod) { p.Admits = []Rule{{Name: "r"}} },
		"TCP ports [0]: give each once":     func(p *Pod) { p.TCP = []uint16{0} },
		"TCP ports [90 90]: give each once": func(p *Pod) { p.TCP = []uint16{90, 90} },
		"or taken by another rule": func(p *Pod) {
			r := Rule{Name: "r", Callers: []string{clientIdentity}}
			p.Admits = []Rule{r, r}
		},
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
	line := strings.Join(Arguments("/run/pair/client.json", Workers), " ")
	for _, want := range []string{"--config-path /run/pair/client.json", "--concurrency 2", "--disable-hot-restart"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
