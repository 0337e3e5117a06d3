package printer

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// No table is wider than its terminal, however long the names are; in a pipe nothing is cut.
func TestTablesOfAProxyFitTheTerminal(t *testing.T) {
	long := strings.Repeat("a-long-name-", 6)
	many := []string{long, long, long}
	n, age := 12345, 1e6
	at := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)
	for _, wide := range []bool{false, true} {
		for _, columns := range []int{80, 100, 160, 0} {
			v := View{Wide: wide, Columns: columns, Now: at}
			var b bytes.Buffer
			for name, err := range map[string]error{
				"workloads": v.Workloads(&b, []ProxyWorkload{{Namespace: long, Name: long, Addresses: many, Node: long, Protocol: "HBONE", Status: "Unhealthy",
					ServiceAccount: long, Workload: long, Services: many, Policies: many, Zone: long}}),
				"services": v.Services(&b, []ProxyService{{Namespace: long, Hostname: long, Addresses: many, Ports: many, Endpoints: []ProxyEndpoint{{Workload: long, Status: "Healthy"}, {Addresses: many, Status: "Unhealthy"}}}}),
				"policies": v.Policies(&b, []ProxyPolicy{{Namespace: long, Name: long, Action: "Allow", Scope: "WorkloadSelector", Workloads: &n, Rules: many}, {Scope: "Global", DryRun: true}}),
				"certificates": v.Certificates(&b, []ProxyCertificate{{Identity: "spiffe://" + long, State: "Unavailable: " + long, Serial: strings.Repeat("AB", 16), ValidFrom: at, ValidUntil: at.Add(time.Hour),
					Roots: []ProxyRoot{{Subject: long, Serial: long, ValidUntil: at}, {Subject: long, Serial: long, ValidUntil: at}}}}),
				"connections": v.Connections(&b, []ProxyConnection{{Namespace: long, Pod: long, Direction: "outbound", Source: "[fd00:10:244:1::2]:65535", Destination: "[fd00:10:244:1::2]:65535",
					Actual: "[fd00:10:244:1::2]:65535", Protocol: "HBONE", Peer: long, State: "established", AllowedBy: long, AgeSeconds: &age}, {Pod: "of an unmodified ztunnel"}}),
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, line := range strings.Split(b.String(), "\n") {
				if width := utf8.RuneCountInString(line); columns > 0 && width > columns {
					t.Errorf("wide %v, %d columns: %d in %q", wide, columns, width, line)
				}
				if columns == 0 && strings.Contains(line, "…") {
					t.Errorf("cut in a pipe: %q", line)
				}
			}
		}
	}
}

func TestMeshesFitTheTerminal(t *testing.T) {
	pods := 1234
	for _, columns := range []int{80, 100, 160, 0} {
		var b bytes.Buffer
		list := []Mesh{{Name: strings.Repeat("m", 32), State: MeshRunning, Nodes: 64, Pods: &pods, Enrolled: &pods, Version: "dev-0123456789ab-dirty", Since: time.Now().Add(-time.Hour)}}
		if err := Meshes(&b, list, columns, time.Now()); err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if width := utf8.RuneCountInString(line); columns > 0 && width > columns {
				t.Errorf("%d columns: %d in %q", columns, width, line)
			}
		}
		if columns == 0 && !strings.Contains(b.String(), list[0].Name) {
			t.Errorf("cut in a pipe: %q", b.String())
		}
	}
}

func TestAnExpiredCertificateSaysSo(t *testing.T) {
	at := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)
	for want, until := range map[string]time.Time{"expired": at, "5m": at.Add(5 * time.Minute), "": {}} {
		if got := expiry(until, at); got != want {
			t.Errorf("%s: %q, want %q", until, got, want)
		}
	}
}
