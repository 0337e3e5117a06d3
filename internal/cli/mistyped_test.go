package cli

import (
	"strings"
	"testing"
)

func TestAValueThatAFlagCannotReadIsToldInItsWords(t *testing.T) {
	for line, want := range map[string]string{
		"up --nodes x":                      `--nodes: "x" is not a whole number` + "\n  fix: write digits alone, such as 2\n",
		"up --nodes 99999999999999999999":   `--nodes: "99999999999999999999" is out of range` + "\n  fix: give a smaller number\n",
		"lab run twopods-qps --block 5":     `--block: "5" is not a duration` + "\n  fix: write a number with its unit, such as 500ms, 30s or 2m\n",
		"lab run twopods-qps --seed -1":     `--seed: "-1" is not a whole number of 0 or more` + "\n  fix: write digits alone, such as 2\n",
		"lab run twopods-qps --rates 1;2":   `--rates: "1;2" is not a list of numbers` + "\n  fix: write numbers with commas between them, such as 1,2.5\n",
		"get pods --all-namespaces=perhaps": `--all-namespaces: "perhaps" is neither true nor false` + "\n  fix: --all-namespaces or --all-namespaces=false\n",
	} {
		f := newFake(t)
		if r := f.run("", strings.Fields(line)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "strconv") {
			t.Errorf("%s: got %+v, want %q", line, r, want)
		}
	}
}
