package printer

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

func seen() []api.Connection {
	client := api.ConnectionEnd{Address: "10.244.1.2:4000", Namespace: "default", Workload: "client-f4298hthwf-qbkhj", Identity: "spiffe://cluster.local/ns/default/sa/client"}
	echo := api.ConnectionEnd{Address: "10.244.2.2:8080", Namespace: "default", Workload: "echo-mh2dln5h4z-thz2w", Identity: "spiffe://cluster.local/ns/default/sa/echo"}
	return []api.Connection{
		{Node: "n1", Event: "closed", Direction: "outbound", Source: client, Destination: echo, Service: "echo.default.svc.cluster.local", Wanted: "10.96.0.2:8080",
			Tunnelled: true, Seconds: 0.0012, BytesReceived: 94, BytesSent: 862},
		{Node: "n2", Event: "closed", Direction: "inbound", Source: client, Destination: echo, Tunnelled: true, Seconds: 0.000091, Flags: "DENY",
			Error: "connection closed due to policy rejection: explicitly denied by default/no-client"},
		{Node: "n1", Event: "opened", Direction: "outbound", Source: client, Wanted: "192.0.2.1:443", Seconds: 1.5},
	}
}

func stream(t *testing.T, room int) []string {
	t.Helper()
	var b strings.Builder
	s := NewStream(&b, term.Style{}, 29, 34).Within(func() int { return room })
	for _, c := range seen() {
		if err := s.Write(c, time.Date(2026, 11, 21, 5, 30, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func TestStreamFitsItsTerminal(t *testing.T) {
	for room, heading := range map[int]string{
		0:   "TIME NODE WAY SOURCE DESTINATION PEER VERDICT LASTED SENT RECEIVED WHY",
		250: "TIME NODE WAY SOURCE DESTINATION PEER VERDICT LASTED SENT RECEIVED WHY",
		160: "TIME NODE WAY SOURCE DESTINATION PEER VERDICT LASTED SENT RECEIVED WHY",
		100: "TIME WAY SOURCE DESTINATION PEER VERDICT LASTED SENT WHY",
		80:  "TIME WAY SOURCE DESTINATION VERDICT WHY",
		72:  "WAY SOURCE DESTINATION VERDICT WHY",
	} {
		lines := stream(t, room)
		if len(lines) != 4 {
			t.Fatalf("at %d: %d lines:\n%s", room, len(lines), strings.Join(lines, "\n"))
		}
		if got := strings.Join(strings.Fields(lines[0]), " "); got != heading {
			t.Errorf("at %d: columns %s, want %s", room, got, heading)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); room > 0 && n > room {
				t.Errorf("at %d: %d wide: %s", room, n, line)
			}
		}
		for _, word := range []string{"qbkhj", "denied", "client"} {
			if !strings.Contains(lines[2], word) {
				t.Errorf("at %d: %q lacks %q", room, lines[2], word)
			}
		}
		if whole := strings.Contains(lines[2], seen()[1].Error); whole != (room == 0 || room == 250) {
			t.Errorf("at %d: the whole reason is there: %v", room, whole)
		}
	}
}

func TestStreamSaysWhoToWhomAndHow(t *testing.T) {
	for i, want := range []string{
		"05:30:00 n1 out default/client-f4298hthwf-qbkhj echo.default:8080 default/echo ok 1.2ms 94 B 862 B -",
		"05:30:00 n2 in default/client-f4298hthwf-qbkhj default/echo-mh2dln5h4z-thz2w:8080 default/client denied 91µs 0 B 0 B " + seen()[1].Error,
		"05:30:00 n1 out default/client-f4298hthwf-qbkhj 192.0.2.1:443 plaintext open 1.5s 0 B 0 B -",
	} {
		if got := strings.Join(strings.Fields(stream(t, 0)[i+1]), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
