package demo

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/generator"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

const denied = "2026-11-20T21:00:00.000001Z\terror\taccess\tconnection complete\tsrc.addr=10.244.1.5:40000 " +
	`src.workload="client-6c8f" src.namespace="default" src.identity="spiffe://cluster.local/ns/default/sa/client" ` +
	`dst.addr=10.244.2.6:15008 dst.hbone_addr=10.244.2.6:9080 dst.identity="spiffe://cluster.local/ns/default/sa/bookinfo-details" ` +
	`direction="inbound" bytes_sent=0 bytes_recv=0 duration="0ms" error="connection closed due to policy rejection: explicitly denied by: default/\"x\""`

func TestAccessLinesAreReadByField(t *testing.T) {
	line, ok := ParseAccessLine(denied)
	if !ok {
		t.Fatal("not taken for an access line")
	}
	for name, want := range map[string]string{
		"src.addr": "10.244.1.5:40000", "src.identity": "spiffe://cluster.local/ns/default/sa/client", "direction": "inbound",
		"bytes_sent": "0", "error": `connection closed due to policy rejection: explicitly denied by: default/"x"`, "absent": "",
	} {
		if got := line.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if !line.Failed() || line.Text != denied {
		t.Errorf("Failed() = %v, Text %q", line.Failed(), line.Text)
	}
}

func TestOtherLogLinesAreNoAccessLines(t *testing.T) {
	for _, line := range []string{
		"", "starting", "2026-11-20T21:00:00Z\tinfo\txds\tconnected\taddr=x", "2026-11-20T21:00:00Z\tinfo\taccess",
		"t\tinfo\taccess\tconnection complete\tno pairs here",
	} {
		if got, ok := ParseAccessLine(line); ok {
			t.Errorf("%q became %v", line, got.fields)
		}
	}
}

func TestAnAccessLineRoundTripsAndNothingPanics(t *testing.T) {
	roundTrip := func(identity string, sent uint32) bool {
		escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(strings.ToValidUTF8(identity, "?"))
		line, ok := ParseAccessLine(fmt.Sprintf("t\tinfo\taccess\tconnection complete\tsrc.identity=\"%s\" bytes_sent=%d", escaped, sent))
		return ok && line.Get("src.identity") == strings.ToValidUTF8(identity, "?") && line.Get("bytes_sent") == fmt.Sprint(sent)
	}
	if err := quick.Check(roundTrip, nil); err != nil {
		t.Error(err)
	}
	anything := func(s string) bool {
		line, ok := ParseAccessLine("t\tinfo\taccess\tm\t" + s)
		return ok == (line.Text != "")
	}
	if err := quick.Check(anything, nil); err != nil {
		t.Error(err)
	}
}

func FuzzParseAccessLine(f *testing.F) {
	f.Add(denied)
	f.Add("t\tinfo\taccess\tm\ta=\"b")
	f.Add("t\tinfo\taccess\tm\ta=\\ b=\"\\\"")
	f.Fuzz(func(t *testing.T, s string) {
		if line, ok := ParseAccessLine(s); ok && line.Text != s {
			t.Errorf("%q became %q", s, line.Text)
		}
	})
}

func series(name, reporter, source, destination, security string, n int) string {
	return fmt.Sprintf("%s{reporter=%q,source_principal=%q,destination_principal=%q,destination_service=\"details.default.svc.cluster.local\",connection_security_policy=%q} %d\n",
		name, reporter, source, destination, security, n)
}

func TestFlowsJoinBothSidesOfAConnection(t *testing.T) {
	const a, b = "spiffe://cluster.local/ns/default/sa/client", "spiffe://cluster.local/ns/default/sa/details"
	n1 := "# TYPE istio_tcp_connections_opened counter\n" + series(metricOpened, "source", a, b, "mutual_tls", 7) +
		series(metricSent, "source", a, b, "mutual_tls", 700) + "# EOF\n"
	n2 := series(metricOpened, "destination", a, b, "mutual_tls", 7) + series(metricSent, "destination", a, b, "mutual_tls", 701) +
		series(metricReceived, "destination", a, b, "mutual_tls", 300) + series(metricFailed, "destination", a, b, "mutual_tls", 2) +
		series(metricOpened, "destination", "unknown", b, "unknown", 3) + "process_cpu_seconds_total 4\n"
	flows, err := Flows([][]byte{[]byte(n1), []byte(n2)})
	if err != nil {
		t.Fatal(err)
	}
	want := []Flow{
		{Source: a, Destination: b, MutualTLS: true, Connections: 7, SeenBySource: 7, Received: 300, Sent: 701, Refused: 2},
		{Source: "unknown", Destination: b, Connections: 3},
	}
	for i := range want {
		want[i].Service = "details.default.svc.cluster.local"
	}
	if !slices.Equal(flows, want) {
		t.Errorf("got %+v\nwant %+v", flows, want)
	}
	if n := Meshed(flows, a, b); n != 7 {
		t.Errorf("Meshed = %d", n)
	}
	if n := Meshed(flows, "unknown", b); n != 0 {
		t.Errorf("connections without mutual TLS count as meshed: %d", n)
	}
}

func TestFlowsAddUpOverServices(t *testing.T) {
	sums := BetweenIdentities([]Flow{
		{Source: "a", Destination: "b", Service: "x", MutualTLS: true, Connections: 1, Sent: 10},
		{Source: "a", Destination: "b", Service: "y", MutualTLS: true, Connections: 2, Sent: 20},
		{Source: "a", Destination: "b", Service: "y", Connections: 4},
	})
	want := []Flow{{Source: "a", Destination: "b", MutualTLS: true, Connections: 3, Sent: 30}, {Source: "a", Destination: "b", Connections: 4}}
	if !slices.Equal(sums, want) {
		t.Errorf("got %+v", sums)
	}
}

func TestFlowsRefuseAPageThatIsNoMetrics(t *testing.T) {
	if flows, err := Flows([][]byte{[]byte("<html>502</html>")}); err == nil {
		t.Errorf("got %v", flows)
	}
}

func TestShortIdentity(t *testing.T) {
	for in, want := range map[string]string{
		"spiffe://cluster.local/ns/default/sa/client": "ns/default/sa/client", "unknown": "unknown", "": "", "spiffe://x/y": "spiffe://x/y",
	} {
		if got := ShortIdentity(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestWireIsJudgedByWhatAnEavesdropperCanRead(t *testing.T) {
	conn := func(src string, class api.Class, syn bool) api.CapturedConn {
		return api.CapturedConn{Src: src, Dst: "10.244.2.6:9080", Class: class, SawSYN: syn}
	}
	wire := JudgeWire(api.CaptureReport{Dropped: 1, Connections: []api.CapturedConn{
		conn("a:1", api.ClassTLS, true), conn("a:2", api.ClassHTTP, false), conn("a:3", api.ClassPlaintext, false),
		conn("a:4", api.ClassHTTP, true), conn("a:5", api.ClassEmpty, true),
	}})
	if len(wire.Encrypted) != 1 || len(wire.Older) != 2 || len(wire.Readable) != 1 || wire.Empty != 1 || wire.Dropped != 1 {
		t.Fatalf("got %+v", wire)
	}
	// The agent on the destination's node lists the same connection the other way round.
	unexplained := wire.Unexplained([]api.Conn{{Local: "10.244.2.6:9080", Remote: "a:2"}})
	var names []string
	for _, c := range unexplained {
		names = append(names, c.Src)
	}
	if !slices.Equal(names, []string{"a:4", "a:3"}) {
		t.Errorf("unexplained: %v", names)
	}
}

func TestFirstLineShowsNothingThatATerminalInterprets(t *testing.T) {
	printable := func(sample []byte) bool {
		line := FirstLine(api.CapturedConn{Sample: sample})
		return !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' })
	}
	if err := quick.Check(printable, nil); err != nil {
		t.Error(err)
	}
	if got := FirstLine(api.CapturedConn{Sample: []byte("GET /details/0 HTTP/1.1\r\nHost: details")}); got != "GET /details/0 HTTP/1.1" {
		t.Errorf("got %q", got)
	}
}

func TestOrderIsBalanced(t *testing.T) {
	if got := fmt.Sprint(Order(3)); got != "[false true true false false true]" {
		t.Errorf("got %s", got)
	}
	for pairs := range 20 {
		mesh := 0
		for _, m := range Order(pairs) {
			if m {
				mesh++
			}
		}
		if mesh != pairs || len(Order(pairs)) != 2*pairs {
			t.Errorf("%d pairs: %d of %d with the mesh", pairs, mesh, len(Order(pairs)))
		}
	}
}

func latency(avg float64) Latency {
	return Latency{Count: 800, Avg: avg, P50: avg * 0.8, P75: avg, P90: avg * 1.2, P99: avg * 3, Max: avg * 10}
}

func block(target string, round int, mesh bool, avg float64) Block {
	b := Block{Target: target, Round: round, Mesh: mesh}
	b.Load.ResponseTime = latency(avg)
	b.Load.Counts.OK = 800
	b.Load.Rates.Wanted, b.Load.Rates.Achieved = 100, 100
	if mesh {
		cpu := 150.0 + float64(round)
		b.ProxyCPUMicros, b.Meshed = &cpu, 10
	}
	b.judge()
	return b
}

func rounds(target string, none, mesh []float64) []Block {
	var blocks []Block
	for i := range none {
		blocks = append(blocks, block(target, i+1, false, none[i]), block(target, i+1, true, mesh[i]))
	}
	return blocks
}

func TestVerdicts(t *testing.T) {
	tests := []struct {
		name       string
		none, mesh []float64
		want       Verdict
	}{
		{"every round faster", []float64{0.9, 0.91, 0.9}, []float64{0.5, 0.51, 0.5}, Faster},
		{"every round slower", []float64{0.5, 0.51, 0.5}, []float64{0.9, 0.91, 0.9}, Slower},
		{"a wild round does not change the order", []float64{0.5, 0.51, 0.5}, []float64{0.9, 48, 0.9}, Slower},
		{"overlapping", []float64{0.5, 0.8, 0.6}, []float64{0.6, 0.65, 0.7}, Unclear},
		{"one round proves nothing", []float64{0.5}, []float64{0.9}, Unclear},
		{"the same", []float64{0.5, 0.5}, []float64{0.5, 0.5}, Unclear},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Compare("echo", rounds("echo", tt.none, tt.mesh))
			if got := c.Verdicts["avg"]; got != tt.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAVerdictSwapsWithTheSides(t *testing.T) {
	opposite := map[Verdict]Verdict{Faster: Slower, Slower: Faster, Unclear: Unclear}
	swaps := func(values []uint16) bool {
		var none, mesh []float64
		for i := 0; i+1 < len(values); i += 2 {
			none, mesh = append(none, float64(values[i])), append(mesh, float64(values[i+1]))
		}
		a, b := Compare("echo", rounds("echo", none, mesh)), Compare("echo", rounds("echo", mesh, none))
		for _, m := range measures {
			if a.Verdicts[m.Name] != opposite[b.Verdicts[m.Name]] {
				return false
			}
		}
		return true
	}
	if err := quick.Check(swaps, nil); err != nil {
		t.Error(err)
	}
}

func TestABadBlockTakesItsRoundOut(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Block)
		fault  string
	}{
		{"failures", func(b *Block) { b.Load.Counts.Failed, b.Load.Errors = 2, map[string]uint64{"reset": 2} }, "2 reset"},
		{"failures in the warm-up", func(b *Block) { b.Load.WarmupErrors = map[string]uint64{"closed": 1} }, "1 closed"},
		{"too slow", func(b *Block) { b.Load.Rates.Achieved = 90 }, "99 %"},
		{"a starved generator", func(b *Block) { b.Load.Lateness.P99 = 10.4 }, "late by 10.40 ms"},
		{"interrupted", func(b *Block) { b.Load.Interrupted = true }, "interrupted"},
		{"nothing sent", func(b *Block) { b.Load.Counts.OK = 0 }, "no request"},
		{"meshed without the mesh", func(b *Block) { b.Meshed = 1 }, "went through the mesh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			blocks := rounds("echo", []float64{0.5, 0.5, 0.5}, []float64{0.6, 0.6, 0.6})
			tt.change(&blocks[2])
			blocks[2].judge()
			if !strings.Contains(blocks[2].Fault, tt.fault) {
				t.Errorf("fault %q", blocks[2].Fault)
			}
			if c := Compare("echo", blocks); c.Pairs != 2 {
				t.Errorf("%d pairs count", c.Pairs)
			}
		})
	}
	unmeshed := block("echo", 1, true, 1)
	unmeshed.Meshed = 0
	if unmeshed.judge(); unmeshed.Fault == "" {
		t.Error("a round with the mesh in which nothing was meshed counts")
	}
}

func TestParagraphFollowsTheNumbers(t *testing.T) {
	setting := Setting{Cores: 2, BlockTime: 8, Rates: map[string]int{"details": 100, "echo": 1000}}
	broken := rounds("echo", []float64{0.2}, []float64{0.4})
	broken[0].Load.Counts.Failed = 1
	broken[0].judge()
	tail := rounds("echo", []float64{0.5, 0.5}, []float64{0.6, 0.6})
	tail[0].Load.ResponseTime.P99 = 50
	busy := rounds("echo", []float64{0.5, 0.5}, []float64{0.6, 0.6})
	share := 0.3
	busy[1].OtherCPU = &share
	tests := []struct {
		name   string
		blocks []Block
		says   []string
		not    []string
	}{
		{
			"faster", rounds("details", []float64{0.9, 0.91, 0.9}, []float64{0.5, 0.51, 0.5}),
			[]string{"to details took 0.72 ms without the mesh and 0.40 ms with it", "0.32 ms (44 %) less", "The mesh was faster on average and at P99", "152 µs", "1.5 % of one core", "3 rounds of 8 s", "2 cores", Mark},
			[]string{"added", "slower", "outside"},
		},
		{
			"slower", rounds("details", []float64{0.5, 0.51, 0.5}, []float64{0.9, 0.91, 0.9}),
			[]string{"added 0.32 ms (80 %)", "The mesh was slower on average and at P99"},
			[]string{"less", "faster"},
		},
		{
			"unclear", rounds("echo", []float64{0.5, 0.8, 0.6}, []float64{0.6, 0.65, 0.7}),
			[]string{"does not tell them apart", "There is no verdict on average and at P99"},
			[]string{"added", "less", "faster", "slower"},
		},
		{"only the tail", tail, []string{"The mesh was slower on average", "there is no verdict at P99"}, []string{"and at P99"}},
		{"busy", busy, []string{"used up to 30 % of the machine"}, nil},
		{"single", rounds("echo", []float64{0.5}, []float64{0.9}), []string{"single good round", "1 round of 8 s"}, []string{"added", "faster", "slower"}},
		{"none good", broken, []string{"no round is good"}, []string{Mark, "µs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Paragraph([]Comparison{Compare(tt.blocks[0].Target, tt.blocks)}, setting)
			for _, s := range tt.says {
				if !strings.Contains(got, s) {
					t.Errorf("does not say %q: %s", s, got)
				}
			}
			for _, s := range tt.not {
				if strings.Contains(got, s) {
					t.Errorf("says %q: %s", s, got)
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	blocks := rounds("details", []float64{0.9, 0.95, 0.92}, []float64{0.8, 0.85, 0.99})
	blocks[2].Load.Counts.Failed, blocks[2].Load.Errors = 3, map[string]uint64{"reset": 3}
	blocks[2].judge()
	blocks = append(blocks, rounds("echo", []float64{0.05}, []float64{0.06})...)
	var out bytes.Buffer
	for _, target := range []string{"details", "echo"} {
		if err := WriteTable(&out, target, blocks, Compare(target, blocks)); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "table.golden", out.String())
}

func TestWrapKeepsEveryWordAndTheWidth(t *testing.T) {
	keeps := func(words []string, w uint8) bool {
		width := int(w%60) + 1
		text := strings.Join(words, " ")
		wrapped := wrap(text, width)
		for line := range strings.SplitSeq(wrapped, "\n") {
			if len([]rune(line)) > width && len(strings.Fields(line)) > 1 {
				return false
			}
		}
		return slices.Equal(strings.Fields(wrapped), strings.Fields(text))
	}
	if err := quick.Check(keeps, nil); err != nil {
		t.Error(err)
	}
}

func TestProxyCPU(t *testing.T) {
	usage := func(n1, n2 uint64, restarts int) api.Usage {
		return api.Usage{Components: []api.ComponentUsage{
			{Kind: "proxy", Name: "n1", PID: 1, CPUNanos: n1}, {Kind: "proxy", Name: "n2", PID: 2, CPUNanos: n2, Restarts: restarts},
			{Kind: "agent", Name: "n1", PID: 3, CPUNanos: n1 * 100},
		}}
	}
	if nanos, ok := proxyCPU(usage(10, 20, 0), usage(15, 27, 0)); !ok || nanos != 12 {
		t.Errorf("got %d, %v", nanos, ok)
	}
	if _, ok := proxyCPU(usage(10, 20, 0), usage(15, 27, 1)); ok {
		t.Error("a restarted proxy's time is taken for known")
	}
	if _, ok := proxyCPU(api.Usage{}, api.Usage{}); ok {
		t.Error("no proxy at all is taken for known")
	}
	gone := usage(15, 27, 0)
	gone.Components = gone.Components[:1]
	if _, ok := proxyCPU(usage(10, 20, 0), gone); ok {
		t.Error("a missing proxy's time is taken for known")
	}
}

func TestOtherCPU(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	usage := func(seconds int, nanos uint64) api.Usage {
		return api.Usage{Time: at.Add(time.Duration(seconds) * time.Second), Components: []api.ComponentUsage{{Kind: "proxy", Name: "n1", CPUNanos: nanos}}}
	}
	var load LoadResult
	load.Counts.OK, load.Generator.UserMicros, load.Generator.SystemMicros = 1000, 300, 200 // half a second
	// Of 10 s on two cores 5 s were busy: 2 s the proxy, 0.5 s the generator, so 2.5 s others.
	got := otherCPU(usage(0, 1e9), usage(10, 3e9), 5*time.Second, load, 2)
	if got == nil || *got < 0.124 || *got > 0.126 {
		t.Errorf("got %v", got)
	}
	if got := otherCPU(usage(0, 1e9), usage(10, 3e9), time.Second, load, 2); got == nil || *got != 0 {
		t.Errorf("less than nothing is not nothing: %v", got)
	}
	if got := otherCPU(api.Usage{Time: at}, usage(10, 3e9), 5*time.Second, load, 2); got != nil {
		t.Errorf("a component that came in between is counted: %v", *got)
	}
}

func TestBusyTimeOfTheMachine(t *testing.T) {
	got, err := parseBusy("cpu  100 20 3 9999 77 4 5 66 7 0\ncpu0 1 2 3\n")
	if err != nil || got != 1320*time.Millisecond {
		t.Errorf("got %s, %v", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "intr 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if got, err := parseBusy(bad); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
	first, err := MachineBusy()
	if err != nil || first <= 0 {
		t.Errorf("this machine: %s, %v", first, err)
	}
}

func TestLoadCommandAndResult(t *testing.T) {
	got := strings.Join(Load{URL: "http://echo:8080/", QPS: 5, Connections: 1, Duration: 500e6, Warmup: 2e9, Fresh: true, Label: "mesh"}.Command(), " ")
	want := "lateen-load run --url http://echo:8080/ --qps 5 --connections 1 --duration 500ms --warmup 2s --json - --all-percentiles --initial-errors --no-keepalive --name mesh"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r, err := generator.Read[LoadResult]([]byte(`{"format":"lateen-load/1","counts":{"ok":98,"failed":2,"warmup_ok":10},"errors":{"reset":2},"warmup_errors":{"closed":1,"reset":1},
		"rates":{"wanted_qps":100,"achieved_qps":99.5},"response_time":{"count":98,"avg":0.5,"p99":2,"p99.9":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.Failures() != 4 || r.Requests() != 112 || r.ErrorText() != "1 closed, 3 reset" || r.ResponseTime.P99 != 2 {
		t.Errorf("got %+v: %d failures, %d requests, %q", r, r.Failures(), r.Requests(), r.ErrorText())
	}
}
