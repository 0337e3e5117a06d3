package archtest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// firstCommit is the commit before the first one that TestCommitMessages looks at.
const firstCommit = "65c3c9401a1e63c7b8b4110b81dcc48a25d8e7a9"

// TestCommitMessages looks at the commits of this clone. A clone without history, or an archive, has none.
func TestCommitMessages(t *testing.T) {
	out, err := exec.Command("git", "log", "--no-merges", "--format=%H%x00%s%x00%b%x01", firstCommit+"..HEAD").Output()
	if err != nil {
		return
	}
	for _, commit := range strings.Split(string(out), "\x01") {
		parts := strings.Split(strings.TrimSpace(commit), "\x00")
		if len(parts) != 3 {
			continue
		}
		if fault := faultOfCommit(parts[1], parts[2]); fault != "" {
			t.Errorf("%.12s %q: %s", parts[0], parts[1], fault)
		}
	}
}

var (
	subject = regexp.MustCompile(`^[a-zA-Z0-9_./, -]+: ([a-zA-Z0-9-]+)( .*)$`)
	// notImperative are endings of verbs that are no imperatives. Some imperatives end so as well.
	notImperative = regexp.MustCompile(`(?:ed|ing)$|[^su]s$`)
	imperatives   = regexp.MustCompile(`^(?:embed|feed|need|seed|shed|speed|exceed|bring|string|ping|ring|alias)$`)
)

// mostOfSubject is how long a subject may be, in characters.
const mostOfSubject = 120

// faultOfCommit says what is wrong with a message; nothing if it begins with an area and an imperative verb, and has a body.
func faultOfCommit(title, body string) string {
	m := subject.FindStringSubmatch(title)
	switch {
	case m == nil:
		return `the subject is not "area: verb …"`
	case notImperative.MatchString(m[1]) && !imperatives.MatchString(m[1]):
		return "the subject does not begin with an imperative verb: " + m[1]
	case len([]rune(title)) > mostOfSubject:
		return "the subject is too long"
	case strings.TrimSpace(body) == "":
		return "the message has no body that says why"
	}
	return ""
}

func TestFaultOfCommit(t *testing.T) {
	for _, tt := range []struct{ title, body, fault string }{
		{"relay: acknowledge late second pieces at once", "why", ""},
		{"tests/kube, hack/fuzz.sh: name the cluster to the command line", "why", ""},
		{"cli: bring the page back", "why", ""},
		{"cli: focus on one mesh", "why", ""},
		{"cli: pass what was asked", "", "the message has no body that says why"},
		{"Fix things", "why", `the subject is not "area: verb …"`},
		{"cli: fixed the page", "why", "the subject does not begin with an imperative verb: fixed"},
		{"cli: adding a page", "why", "the subject does not begin with an imperative verb: adding"},
		{"cli: adds a page", "why", "the subject does not begin with an imperative verb: adds"},
		{"cli: " + strings.Repeat("say it ", 20), "why", "the subject is too long"},
	} {
		if got := faultOfCommit(tt.title, tt.body); got != tt.fault {
			t.Errorf("%q: got %q, want %q", tt.title, got, tt.fault)
		}
	}
}
