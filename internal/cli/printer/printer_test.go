package printer

import (
	"bytes"
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

func TestAgeKeepsTheUnitThatSaysMost(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Minute: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		3 * time.Hour: "3h", 47 * time.Hour: "47h", 50 * time.Hour: "2d",
	} {
		if got := Age(now.Add(-d), now); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
	if got := Age(time.Time{}, now); got != "" {
		t.Errorf("an unknown time has the age %s", got)
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 1<<64 - 1: "16384.0 PiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestGridColumnsStayCountable(t *testing.T) {
	property := func(cells [][3]uint8) bool {
		grid := NewGrid("A", "BB", "CCC").Right(1)
		for _, row := range cells {
			grid.Row(strings.Repeat("é", int(row[0]%9)), strings.Repeat("x", int(row[1]%9)), strings.Repeat("y", int(row[2]%9)))
		}
		var out bytes.Buffer
		if err := grid.Print(&out, ""); err != nil {
			return false
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != len(cells)+1 {
			return false
		}
		// The last column is left-aligned, so it starts at the same place in each line.
		start := -1
		for _, line := range lines {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				return false
			}
			at := utf8.RuneCountInString(line) - utf8.RuneCountInString(fields[2])
			if start >= 0 && at != start {
				return false
			}
			start = at
		}
		return true
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

func TestStateOfAnObject(t *testing.T) {
	condition := func(status string) api.Condition {
		return api.Condition{Type: "Effective", Status: status, Reason: map[string]string{"True": "Accepted", "False": "R"}[status], Message: "m"}
	}
	partial := api.Condition{Type: "Accepted", Status: "True", Reason: "UnsupportedValue", Message: "less than written"}
	tests := []struct {
		name          string
		object        api.Object
		state, reason string
	}{
		{"nobody has said anything", api.Object{}, "unknown", ""},
		{"good", api.Object{Conditions: []api.Condition{condition("True")}}, "live", ""},
		{"one condition is bad", api.Object{Conditions: []api.Condition{condition("True"), condition("False")}}, "ineffective", "R: m"},
		{"only a part is in force", api.Object{Conditions: []api.Condition{partial, condition("True")}}, "partial", "UnsupportedValue: less than written"},
		{"without effect, with a warning about it", api.Object{Conditions: []api.Condition{condition("False")}, Problems: []api.Problem{{Severity: "warning", Message: "w"}}}, "ineffective", "R: m"},
		{"in force, with a warning", api.Object{Conditions: []api.Condition{condition("True")}, Problems: []api.Problem{{Severity: "warning", Field: "spec", Message: "w"}}}, "live", "spec: w"},
		{"refused, after a warning", api.Object{Problems: []api.Problem{{Severity: "warning", Message: "w"}, {Severity: "error", Message: "bad"}}}, "refused", "bad"},
		{"refused, and in force in its strictest reading", api.Object{Conditions: []api.Condition{{Type: "Accepted", Status: "False", Reason: "Invalid", Message: "m"}}, Problems: []api.Problem{{Message: "bad"}}}, "refused", "Invalid: m"},
		{"refused counts more", api.Object{Conditions: []api.Condition{condition("True")}, Problems: []api.Problem{{Message: "bad"}}}, "refused", "bad"},
	}
	for _, tt := range tests {
		if state, reason := State(tt.object); state != tt.state || reason != tt.reason {
			t.Errorf("%s: got %s, %q", tt.name, state, reason)
		}
	}
}

func TestParseFormatOffersOnlyWhatTheCommandHas(t *testing.T) {
	if f, err := ParseFormat("yaml", Table, YAML); err != nil || f != YAML {
		t.Errorf("got %s, %v", f, err)
	}
	if _, err := ParseFormat("wide", Table, YAML); err == nil {
		t.Error("a format that is not offered is taken")
	}
}

func TestOnlyARefusalStandsForWhatTheControlPlaneSays(t *testing.T) {
	effect := api.Problem{Object: "AuthorizationPolicy default/p", Field: "Accepted", Message: "not enforced"}
	for severity, shown := range map[string]bool{"warning": true, "error": false} {
		file := api.Problem{Severity: severity, File: "p.yaml", Line: 5, Object: effect.Object, Message: "a remark"}
		lines := findings(api.Status{Problems: []api.Problem{file, effect}})
		if len(lines) != 1 || strings.Contains(lines[0], "Accepted: not enforced") != shown || !strings.HasPrefix(lines[0], file.String()) {
			t.Errorf("%s: %q", severity, lines)
		}
	}
}

// The table explains once why pods are outside, so that it stays as wide as a terminal.
func TestPodsOutsideAreToldOfOnce(t *testing.T) {
	var pods []api.PodState
	for _, name := range []string{"a", "b"} {
		pods = append(pods, api.PodState{Namespace: "shop", Name: name, Mesh: "outside", MeshReason: "shares its node's network", HostNetwork: true})
	}
	// A name as a node's proxy has it hides nothing.
	pods[1].Name, pods[1].Node = "ztunnel-n1", "n1"
	var b strings.Builder
	if err := Status(&b, api.Status{Pods: pods}, term.Style{}, StatusOptions{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if strings.Count(text, "shares its node's network") != 1 || !strings.Contains(text, "shop/a, shop/ztunnel-n1") {
		t.Errorf("got %s", text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "shop") && len(line) > 80 {
			t.Errorf("%d wide: %s", len(line), line)
		}
	}
}

// Why a pod is not ready is a sentence at times: it stands below the table, so that every row stays as wide as it was.
func TestALongReasonIsBelowTheTable(t *testing.T) {
	why := "container reviews: readiness probe: dial tcp 10.244.1.4:9080: connect: connection refused"
	var b strings.Builder
	pods := []api.PodState{{Namespace: "shop", Name: "a", Phase: "Running", Reason: why}, {Namespace: "shop", Name: "b", Phase: "Pending", Reason: "waits for the agent"}}
	if err := Status(&b, api.Status{Pods: pods}, term.Style{}, StatusOptions{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if !strings.Contains(text, "! shop/a: "+why+"\n") || strings.Contains(text, "Running (") || !strings.Contains(text, "Pending (waits for the agent)") {
		t.Errorf("got %s", text)
	}
}
