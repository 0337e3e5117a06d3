package archtest

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// needsLine declares the tools of a script: a comment in the script itself, a call in a library of scripts.
var needsLine = regexp.MustCompile(`(?m)^(?:# needs: |needs )([a-z0-9 ]*)`)

// listedTools are the commands by which hack/packages.list recognises its packages.
func listedTools(t *testing.T) []string {
	t.Helper()
	var tools []string
	for line := range strings.Lines(read(t, "hack/packages.list")) {
		if fields := strings.Split(line, " | "); len(fields) == 4 && !strings.HasPrefix(line, "#") {
			if tool, is := strings.CutPrefix(fields[1], "command -v "); is {
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

// calledTools are those of the tools that a script calls. A word in a comment or a description is no call; a word in an
// argument that is read as a command elsewhere, as in `bash -c "tcpdump …"`, is one.
func calledTools(script string, tools []string) []string {
	var called []string
	for _, tool := range tools {
		call := regexp.MustCompile(`(?:^|[|;&({!]|\$\(|"|'|-- |then|do|nsenter .*|timeout \S+|exec|in_\w+ \S+|on_node \S+|bash -c|env \S+=\S*) *` + regexp.QuoteMeta(tool) + `(?: |$|\))`)
		for line := range strings.Lines(script) {
			if code := strings.TrimSpace(line); !strings.HasPrefix(code, "#") && call.MatchString(code) {
				called = append(called, tool)
				break
			}
		}
	}
	return called
}

// A script whose tool is missing is skipped with a line that says so. It would fail its checks instead if it did not name the tool.
func TestScriptsNameTheToolsThatTheyNeed(t *testing.T) {
	// Compilers are looked for before anything is built. Bookinfo goes on without its interpreters.
	elsewhere := []string{"cc", "cmake", "make", "git", "node", "javac", "ruby"}
	tools := slices.DeleteFunc(listedTools(t), func(tool string) bool { return slices.Contains(elsewhere, tool) })
	if len(tools) < 8 {
		t.Fatalf("hack/packages.list has %d tools: the test reads it wrongly", len(tools))
	}
	declared := func(names ...string) []string {
		var found []string
		for _, name := range names {
			for _, m := range needsLine.FindAllStringSubmatch(read(t, name), -1) {
				found = append(found, strings.Fields(m[1])...)
			}
		}
		return found
	}
	const accept, kube = "tests/accept/lib.sh", "tests/kube/lib.sh"
	looked := 0
	for _, name := range committedFiles(t, "tests/*.sh") {
		by := []string{name}
		switch dir := path.Dir(name); {
		case dir == "tests/accept/meaning":
			by = []string{"tests/accept/38-meaning.sh", accept}
		case dir == "tests/accept/command-line":
			by = []string{"tests/accept/39-command-line.sh", accept}
		case dir == "tests/accept":
			by = append(by, accept)
		case dir == "tests/faults":
			by = append(by, accept, "tests/faults/lib.sh")
		case dir == "tests/kube":
			by = append(by, kube)
		default:
			continue
		}
		if !strings.Contains(read(t, by[0]), "lib.sh\"") && name != accept && name != kube && path.Base(name) != "faults.sh" {
			continue // a runner, which calls nothing but scripts
		}
		looked++
		has := declared(by...)
		for _, tool := range calledTools(read(t, name), tools) {
			if !slices.Contains(has, tool) {
				t.Errorf("%s calls %s: name it in a line \"# needs: %s\" of %s", name, tool, tool, by[0])
			}
		}
		for _, tool := range has {
			if !slices.Contains(tools, tool) {
				t.Errorf("%s needs %s, which hack/packages.list does not install", name, tool)
			}
		}
	}
	if looked < 60 {
		t.Errorf("looked at %d scripts: the rule looks where they are not", looked)
	}
}

func TestCalledTools(t *testing.T) {
	for line, want := range map[string]string{
		`tcpdump -i any`:                        "tcpdump",
		`in_netns "$uid" tcpdump -w x &`:        "tcpdump",
		`nsenter -t 1 -n -- nft list ruleset`:   "nft",
		`x=$(nft list ruleset)`:                 "nft",
		`check "it" bash -c "nft list ruleset"`: "nft",
		`# tcpdump shows it`:                    "",
		`check "tcpdumps are empty" true`:       "",
		`lateen lab run --tools nft-like`:       "",
	} {
		if got := strings.Join(calledTools(line, []string{"tcpdump", "nft"}), " "); got != want {
			t.Errorf("%q calls %q, want %q", line, got, want)
		}
	}
}
