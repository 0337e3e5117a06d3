package printer

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

const denied = "denied by AuthorizationPolicy default/no-client-of-any-sort"

func seen() (connections []api.Connection, reasons []Reason) {
	client := api.ConnectionEnd{Address: "10.244.1.2:4000", Namespace: "default", Workload: "client-f4298hthwf-qbkhj", Identity: "spiffe://cluster.local/ns/default/sa/client"}
	echo := api.ConnectionEnd{Address: "10.244.2.2:8080", Namespace: "default", Workload: "echo-mh2dln5h4z-thz2w", Identity: "spiffe://cluster.local/ns/default/sa/echo"}
	return []api.Connection{
		{Node: "n1", Event: "closed", Direction: "outbound", Source: client, Destination: echo, Service: "echo.default.svc.cluster.local", Wanted: "10.96.0.2:8080",
			Tunnelled: true, Seconds: 0.0012, Bytes: api.Bytes{ClientToServer: 94, ServerToClient: 862}},
		{Node: "n2", Event: "closed", Direction: "inbound", Source: client, Destination: echo, Tunnelled: true, Seconds: 0.000091, Flags: "DENY", Error: "explicitly denied by: default/x"},
		{Node: "n1", Event: "opened", Direction: "outbound", Source: client, Wanted: "192.0.2.1:443", Seconds: 1.5},
		{Node: "n1", Event: "closed", Direction: "outbound", Source: client, Destination: echo, Service: "an-external-service-of-a-long-name.example.com", Wanted: "10.96.0.2:8080",
			Tunnelled: true, DeniedByPeer: true, Error: "401"},
	}, []Reason{{}, {denied, "default/no-client-of-any-sort"}, {}, {"the server's node proxy denied it; its inbound line names the policy", "by the server's proxy"}}
}

func stream(t *testing.T, room int) []string {
	t.Helper()
	connections, reasons := seen()
	var b strings.Builder
	s := NewStream(&b, term.Style{}, "default", connections[:2]).Within(func() int { return room })
	for i, c := range connections {
		if err := s.Write(c, reasons[i], time.Date(2026, 11, 21, 5, 30, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func words(line string) string { return strings.Join(strings.Fields(line), " ") }

func TestStreamFitsItsTerminalWithReadableNames(t *testing.T) {
	const all = "TIME NODE DIRECTION SOURCE DESTINATION PEER VERDICT DURATION TO-SERVER TO-CLIENT REASON"
	for room, want := range map[int]struct{ heading, first string }{
		0:   {all, "05:30:00 n1 outbound default/client-f4298hthwf-qbkhj echo.default:8080 default/echo ok 1.2ms 94 B 862 B -"},
		250: {all, "05:30:00 n1 outbound default/client-f4298hthwf-qbkhj echo.default:8080 default/echo ok 1.2ms 94 B 862 B -"},
		190: {all, "05:30:00 n1 outbound client-f4298hthwf-qbkhj echo:8080 echo ok 1.2ms 94 B 862 B -"},
		160: {all, "05:30:00 n1 outbound client echo:8080 echo ok 1.2ms 94 B 862 B -"},
		100: {"TIME DIRECTION SOURCE DESTINATION VERDICT REASON", "05:30:00 outbound client echo:8080 ok -"},
		80:  {"SOURCE DESTINATION VERDICT REASON", "client echo:8080 ok -"},
		60:  {"SOURCE DESTINATION VERDICT REASON", "client echo:8080 ok -"},
	} {
		lines := stream(t, room)
		if len(lines) != 5 {
			t.Fatalf("at %d: %d lines:\n%s", room, len(lines), strings.Join(lines, "\n"))
		}
		if got := words(lines[0]); got != want.heading {
			t.Errorf("at %d: columns %s, want %s", room, got, want.heading)
		}
		if got := words(lines[1]); got != want.first {
			t.Errorf("at %d: got  %s\nwant %s", room, got, want.first)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); room > 0 && n > room {
				t.Errorf("at %d: %d wide: %s", room, n, line)
			}
		}
		if room > 60 && !strings.Contains(lines[2], "default/no-cl") {
			t.Errorf("at %d the reason does not name the policy: %q", room, lines[2])
		}
		if whole := strings.Contains(lines[2], denied); whole != (room == 0 || room == 250) {
			t.Errorf("at %d: the whole reason is there: %v", room, whole)
		}
	}
}

// Both ends of a connection have a line. Without a direction the two look like one that is told twice.
func TestStreamShortensNamesBeforeItDropsTimeAndDirection(t *testing.T) {
	connections, _ := seen()
	for i := range connections {
		connections[i].Source.Namespace, connections[i].Destination.Namespace = "bookinfo-production", "bookinfo-production"
		connections[i].Service = strings.Replace(connections[i].Service, ".default.", ".bookinfo-production.", 1)
	}
	for room, want := range map[int]string{100: "TIME DIRECTION SOURCE DESTINATION VERDICT REASON", 90: "DIRECTION SOURCE DESTINATION VERDICT REASON", 80: "SOURCE DESTINATION VERDICT REASON"} {
		var b strings.Builder
		s := NewStream(&b, term.Style{}, "default", connections[:2]).Within(func() int { return room })
		for _, c := range connections {
			if err := s.Write(c, nil, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Split(b.String(), "\n")
		if got := words(lines[0]); got != want {
			t.Errorf("at %d: columns %s, want %s", room, got, want)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > room {
				t.Errorf("at %d: %d wide: %s", room, n, line)
			}
		}
	}
}

// Each cell stands below its heading, also where a later name is wider than all that were expected.
func TestStreamAlignsRowsWithTheirHeader(t *testing.T) {
	for _, room := range []int{0, 160, 100, 80} {
		lines := stream(t, room)
		at := strings.Index(lines[0], "VERDICT")
		for i, verdict := range []string{"ok", "denied", "open", "denied by peer"} {
			line := []rune(lines[i+1])
			cell := strings.TrimSpace(string(line[at:min(len(line), at+14)]))
			if wider := room == 0 && i == 3; cell != verdict && !wider {
				t.Errorf("at %d: %q stands below VERDICT of\n%s\n%s", room, cell, lines[0], string(line))
			}
		}
		if whole := strings.Contains(lines[4], "an-external-service-of-a-long-name.example.com:8080"); whole != (room == 0) {
			t.Errorf("at %d: the whole name is there: %v", room, whole)
		}
	}
}

func TestStreamSettlesItsColumnsAnewWhenTheTerminalChanges(t *testing.T) {
	connections, reasons := seen()
	var b strings.Builder
	room := 80
	s := NewStream(&b, term.Style{}, "default", connections[:2]).Within(func() int { return room })
	for _, room = range []int{80, 80, 160} {
		if err := s.Write(connections[0], reasons[0], time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(b.String(), "\n")
	if words(lines[0]) != "SOURCE DESTINATION VERDICT REASON" || !strings.HasPrefix(lines[3], "TIME ") || strings.Count(b.String(), "VERDICT") != 2 {
		t.Errorf("got\n%s", b.String())
	}
}

func TestStreamSaysThatEventsWereDropped(t *testing.T) {
	for terminal, want := range map[bool]string{true: "! n1: 9 events dropped: terminal too slow\n", false: "! n1: 9 events dropped: reader too slow\n"} {
		var b strings.Builder
		if err := NewStream(&b, term.Style{Terminal: terminal}, "", nil).Missed("n1", 9); err != nil || b.String() != want {
			t.Errorf("got %q, %v", b.String(), err)
		}
	}
}

func TestNamesLoseOnlyWhatGoesWithoutSaying(t *testing.T) {
	short := Names{Home: "default", Short: true}
	for pod, want := range map[string]string{
		"productpage-v1-7d4c8b9f5c-xk2lp": "productpage-v1:8080",
		"ratings-v1-65977d6f7b-lk4w2":     "ratings-v1:8080",
		"web-0":                           "web-0:8080",
		"node-exporter-x7k2p":             "node-exporter-x7k2p:8080",
		"reviews-stable-proxy":            "reviews-stable-proxy:8080",
	} {
		c := api.Connection{Direction: "inbound", Destination: api.ConnectionEnd{Namespace: "default", Workload: pod, Address: "10.0.0.1:8080"}}
		if got := short.Destination(c); got != want {
			t.Errorf("%s: got %s, want %s", pod, got, want)
		}
		c.Destination.Namespace = "shop"
		if got := short.Destination(c); got != "shop/"+want {
			t.Errorf("%s of another namespace: got %s, want shop/%s", pod, got, want)
		}
	}
	c := api.Connection{Source: api.ConnectionEnd{Address: "10.0.0.9:41234"}, Direction: "outbound", Service: "echo.shop.svc.cluster.local", Wanted: "[fd00::1]:80"}
	if got := short.Source(c) + " " + (Names{}).Source(c) + " " + short.Destination(c); got != "10.0.0.9 10.0.0.9:41234 echo.shop:80" {
		t.Errorf("got %s", got)
	}
}

func TestDurationsHaveAtMostEightCharacters(t *testing.T) {
	for seconds, want := range map[float64]string{0: "", 0.0000912: "91µs", 0.0012: "1.2ms", 1.5: "1.5s", 125: "2m5s", 7261: "2h1m", 359000: "99h43m", 360000: "4d4h", 8.7e7: "1006d22h"} {
		if got := Duration(seconds); got != want || utf8.RuneCountInString(got) > 8 {
			t.Errorf("%v: got %q, want %q", seconds, got, want)
		}
	}
}

// The event of an opening connection carries no counts; "0 B" would be a claim about the bytes since.
func TestStreamShowsNoBytesThatAreNotCounted(t *testing.T) {
	for event, want := range map[string]string{"opened": "  -           -", "open": "0 B         0 B", "closed": "0 B         0 B"} {
		var out strings.Builder
		if err := NewStream(&out, term.Style{}, "", nil).Write(api.Connection{Node: "n1", Event: event, Direction: "outbound"}, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if !strings.Contains(lines[1], want) || strings.Contains(lines[1], "0 B") != (event != "opened") {
			t.Errorf("%s: got\n%s\nwant %q", event, out.String(), want)
		}
	}
}
