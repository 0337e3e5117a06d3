package archtest

import (
	"regexp"
	"strings"
	"testing"
)

// quietInPipe is a grep that leaves at its first match while somebody may still write to it.
var quietInPipe = regexp.MustCompile(`(?:^|[^|])\|&?\s*grep\s+(?:-\S+\s+)*(?:-[a-zA-Z]*q|--quiet|--silent)`)

// leavesEarly says whether a line of a script ends a pipe with a grep that leaves early. A shell of its own (`bash -c`)
// has no pipefail.
func leavesEarly(line string) bool {
	code := strings.TrimSpace(line)
	return !strings.HasPrefix(code, "#") && !strings.Contains(code, "bash -c") && quietInPipe.MatchString(code)
}

// By pipefail a pipe fails when `grep -q` has found what it looks for and whoever writes to it has more to say: a check that
// fails because much was found, and for ever once it is much.
func TestNoPipeEndsWhenItHasFound(t *testing.T) {
	looked := 0
	for _, name := range committedFiles(t, "tests/*.sh") {
		looked++
		for n, line := range strings.Split(read(t, name), "\n") {
			if leavesEarly(line) {
				t.Errorf("%s:%d: grep -q at the end of a pipe kills who still writes, which pipefail takes for a failure; use found of tests/accept/lib.sh: %s", name, n+1, strings.TrimSpace(line))
			}
		}
	}
	if looked < 20 {
		t.Errorf("looked at %d scripts: the rule looks where they are not", looked)
	}
}

func TestWhatLeavesEarly(t *testing.T) {
	for line, want := range map[string]bool{
		`denied() { grep -h a log | grep 'sa/foe"' | grep -q "$name"; }`: true,
		`served() { grep a log | grep -vq 'error='; }`:                   true,
		`named() { grep a log | grep -E -q b; }`:                         true,
		`named() { grep a log |& grep --quiet b; }`:                      true,
		`ended() { [ ! -d x ] || grep -q '^State' status; }`:             false,
		`named() { grep a log | found b; }`:                              false,
		`check "it" bash -c "tcpdump | grep -q ."`:                       false,
		`# proxy_log n2 | grep -q x`:                                     false,
	} {
		if got := leavesEarly(line); got != want {
			t.Errorf("leavesEarly(%q) = %v", line, got)
		}
	}
}
