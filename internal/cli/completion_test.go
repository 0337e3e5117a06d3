package cli

import (
	"strings"
	"testing"
)

func TestNewCommandsCompleteNamesAndValues(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	for line, want := range map[string]string{
		"describe pod ":              "details-v1-a\nratings-v1-b\n",
		"edit ap ":                   "l7\nl4\nbad\npart\n",
		"annotate svc ":              "details\n",
		"delete pods ":               "details-v1-a\nratings-v1-b\n",
		"rollout restart ":           "deploy/details-v1\n",
		"rollout status ":            "deploy/details-v1\n",
		"apply --dry-run=":           "server\nclient\nnone\n",
		"get pods -o ":               "table\nwide\nname\njson\nyaml\njsonpath=\n",
		"api-resources --output yam": "yaml\n",
	} {
		r := f.run("", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		got, _, _ := strings.Cut(r.stdout, ":")
		if r.code != ExitOK || got != want && !(strings.HasSuffix(line, "yam") && strings.Contains(got, want)) {
			t.Errorf("%s: %q", line, r.stdout)
		}
	}
}
