package main

import (
	"strings"

	"lateen.dev/lateen/internal/analyse"
)

const analysisIntroduction = `# Reference: findings about policies

A policy can be valid and still not do what its author meant. The control plane looks for that, and ` + "`lateen apply`, `lateen apply --dry-run`, `lateen get`" + `
and ` + "`lateen status`" + ` say what it finds. Findings change nothing. ` + "`lateen get -o json`" + ` has them under ` + "`status.analysis`" + `, and
` + "`/debug/analysis`" + ` of the control plane has all of them; documents that are posted there are judged as if they were applied.

| state | meaning |
|---|---|
| ` + "`ineffective`" + ` | the object changes nothing |
| ` + "`refuses-all`" + ` | an ALLOW policy lets nobody connect to some of its pods, and this can hardly be meant |
| ` + "`partial`" + ` | the object is in force, but not all of it, or hardly as it was meant |
| ` + "`dry-run`" + ` | the policy reports, and enforces nothing |

A finding of severity ` + "`info`" + ` says what the object does; one of severity ` + "`warning`" + ` says that this can hardly be meant. Findings are about
the objects of this moment: a policy that names pods which are applied later has findings until then.

## Codes

`

// analysisPage is about what the control plane finds in objects that are valid.
func analysisPage() string {
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(analysisIntroduction)
	var rows [][]string
	for _, c := range analyse.Codes {
		state := "–"
		if c.State != "" {
			state = code(string(c.State))
		}
		rows = append(rows, []string{code(string(c.Code)), string(c.Severity), state, c.Meaning, c.Remedy})
	}
	table(&b, []string{"code", "severity", "state", "meaning", "remedy"}, rows)
	return strings.TrimRight(b.String(), "\n") + "\n"
}
