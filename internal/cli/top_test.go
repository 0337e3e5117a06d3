package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func TestTopRatesOfPods(t *testing.T) {
	before := []api.PodUse{
		{Node: "n1", Namespace: "default", Pod: "a", Opened: 10, Failed: 1, ReceivedBytes: 1000, SentBytes: 500, CPUSeconds: 1},
		{Node: "n1", Namespace: "default", Pod: "restarted", Opened: 100, SentBytes: 900, CPUSeconds: 5},
	}
	now := []api.PodUse{
		{Node: "n1", Namespace: "default", Pod: "restarted", Open: 1, Opened: 2, SentBytes: 50, CPUSeconds: 0.1},
		{Node: "n2", Namespace: "default", Pod: "new", Open: 3, Opened: 3, SentBytes: 70, CPUSeconds: 2},
		{Node: "n1", Namespace: "default", Pod: "a", Open: 2, Opened: 14, Denied: 6, Failed: 2, ReceivedBytes: 3000, SentBytes: 600, CPUSeconds: 1.5},
	}
	rates := podRates(before, now, 2)
	want := []podRate{
		{Node: "n1", Namespace: "default", Pod: "a", Open: 2, OpenedPerSec: 2, DeniedPerSec: 3, FailedPerSec: 0.5, ReceivedPerSec: 1000, SentPerSec: 50, CPU: 0.25},
		// The counts of a pod that is seen for the first time are no rate.
		{Node: "n2", Namespace: "default", Pod: "new", Open: 3},
		{Node: "n1", Namespace: "default", Pod: "restarted", Open: 1},
	}
	for i := range want {
		if rates[i] != want[i] {
			t.Errorf("%d: got %+v, want %+v", i, rates[i], want[i])
		}
	}
	var b strings.Builder
	if err := podGrid(rates, 0).Print(&b, ""); err != nil {
		t.Fatal(err)
	}
	if row := strings.Join(strings.Fields(strings.Split(b.String(), "\n")[1]), " "); row != "default a n1 2 2.0 3.0 0.5 50 B 1000 B 25.0%" {
		t.Errorf("row %q", row)
	}
}

func TestTopRatesOfConnections(t *testing.T) {
	before := []api.Connection{{Node: "n1", ID: "1", Bytes: api.Bytes{ClientToServer: 100}}, {Node: "n1", ID: "2"}}
	now := []api.Connection{
		{Node: "n1", ID: "1", Bytes: api.Bytes{ClientToServer: 300}, Seconds: 9},
		{Node: "n2", ID: "1", Bytes: api.Bytes{ServerToClient: 4000}, Seconds: 1}, // another one of another proxy
	}
	rates := connectionRates(before, now, 2)
	if len(rates) != 2 || rates[0].Node != "n2" || rates[0].PerSec.ServerToClient != 2000 || rates[1].PerSec.ClientToServer != 100 {
		t.Errorf("got %+v", rates)
	}
}

// A name is worth more than a namespace that all rows share.
func TestTopDropsASharedNamespaceBeforeItCutsNames(t *testing.T) {
	rates := []podRate{{Node: "n1", Namespace: "default", Pod: "productpage-v1-7d4c8b9f5c-xk2lp"}, {Node: "n1", Namespace: "default", Pod: "reviews-v1-65977d6f7b-lk4w2"}}
	table := func(width int) string {
		var b strings.Builder
		if err := podGrid(rates, width).Print(&b, ""); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	wide := utf8.RuneCountInString(strings.SplitN(table(0), "\n", 2)[0])
	if got := table(wide); !strings.Contains(got, "NAMESPACE") {
		t.Errorf("at %d, which has room for all:\n%s", wide, got)
	}
	if got := table(wide - 1); strings.Contains(got, "NAMESPACE") || !strings.Contains(got, rates[0].Pod) || !strings.Contains(got, rates[1].Pod) {
		t.Errorf("at %d:\n%s", wide-1, got)
	}
	rates[1].Namespace = "shop"
	if got := table(wide - 1); !strings.Contains(got, "NAMESPACE") || !strings.Contains(got, "…") {
		t.Errorf("of two namespaces at %d:\n%s", wide-1, got)
	}
}

func TestTopFitsItsTerminal(t *testing.T) {
	pods := []podRate{{Node: "n1", Namespace: "default", Pod: "productpage-v1-7d4c8b9f5c-xk2lp", SentPerSec: 1e6, ReceivedPerSec: 1e6, DeniedPerSec: 12.5}}
	end := func(pod string) api.ConnectionEnd {
		return api.ConnectionEnd{Namespace: "default", Workload: pod, Address: "10.244.1.2:9080", Identity: "spiffe://cluster.local/ns/default/sa/bookinfo-productpage"}
	}
	connections := []connectionRate{{Connection: api.Connection{Node: "n1", Direction: "inbound", Tunnelled: true, Seconds: 9.5,
		Source: end("productpage-v1-7d4c8b9f5c-xk2lp"), Destination: end("reviews-v3-65977d6f7b-lk4w2")}, PerSec: bytesRate{1e6, 1e6}}}
	for _, width := range []int{80, 100, 160} {
		for _, grid := range []*printer.Grid{podGrid(pods, width), connectionGrid(connections, width)} {
			var b strings.Builder
			if err := grid.Print(&b, ""); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("at %d: %d wide: %s", width, n, line)
				}
			}
			if names := strings.Contains(b.String(), "productpage-v1 ") && strings.Contains(b.String(), "reviews-v3:9080"); grid.Len() == 1 && strings.Contains(b.String(), "DIRECTION") && !names {
				t.Errorf("at %d:\n%s", width, b.String())
			}
			if !strings.Contains(b.String(), "976.6 KiB") {
				t.Errorf("at %d there are no rates:\n%s", width, b.String())
			}
		}
	}
}

func TestTapAndTopRefuseWhatTheyDoNotKnow(t *testing.T) {
	f := newFake(t)
	for args, want := range map[string]string{
		"tap a b":                    `unexpected argument "b"`,
		"tap --denied --failed":      "use one of them",
		"tap --direction sideways":   "use inbound or outbound",
		"tap --for -1s":              "use a time above zero",
		"tap service/echo":           "for a service there is --service echo",
		"top processes":              "use pods or connections",
		"top --once --interval 10ms": "use a time from 100ms",
	} {
		r := f.run("", strings.Fields(args)...)
		if r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: code %d, %q lacks %q", args, r.code, r.stderr, want)
		}
	}
}
