package main

import (
	"fmt"
	"strings"

	"lateen.dev/lateen/internal/meaning"
)

const takeOverIntroduction = `# Reference: what means something else than in Istio

` + "`lateen install --take-over=istio --dry-run`" + ` compares the objects and settings of a cluster with what Istio's ambient mode makes of them.
It names each object that a row below is about, with the lines that keep today's meaning; ` + "`-o json`" + ` has the same under ` + "`meaning`" + `.
Istio is that of its main branch of August 2026 with ztunnel 1.30; what is in no row means the same, as far as is known.

| effect | in JSON | what it says |
|---|---|---|
| access opens | ` + "`accessOpens`" + ` | connections that are refused today are allowed |
| access closes | ` + "`accessCloses`" + ` | connections that are allowed today are refused or fail |
| connections go another way | ` + "`routeChanges`" + ` | they go to another place, or past a proxy |
| no longer configured | ` + "`notServed`" + ` | no part of this mesh acts on it, and no control plane configures sidecars and gateways of Istio any more |
| names, logs or limits change | ` + "`nameChanges`" + ` | who may connect to whom does not |

A row with *refuses* refuses the take-over, since no object can undo it for all that is yet to come. Set the value that the row names, or go on with
` + "`--accept-difference=FIELD`" + `, where FIELD is what the dry run names, such as ` + "`meshConfig.serviceEntryVisibility`" + `. An upgrade that ends a
take-over takes the flag as well.

What the caller may not read, and what stands in a Secret or elsewhere, is listed as not compared.

`

// takeOverPage is about what means something else than in Istio.
func takeOverPage() string {
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(takeOverIntroduction)
	b.WriteString("## Differences\n\n")
	var differ, same [][]string
	for _, r := range meaning.Rules {
		if len(r.Severities) == 0 {
			same = append(same, []string{r.On, r.Today})
			continue
		}
		keep := r.Advice
		for _, l := range r.Keep {
			if keep == "" && !strings.HasPrefix(l, "#") {
				keep = "the dry run prints the lines"
			} else if keep == "" {
				keep = strings.TrimSuffix(strings.TrimPrefix(l, "# "), ":")
			}
		}
		differ = append(differ, []string{code(r.ID), r.On, r.Today, r.Then, effects(r.Severities, r.Refuses), keep})
	}
	table(&b, []string{"rule", "on", "Istio's ambient mode", "this mesh", "effect", "to keep today's meaning"}, differ)
	b.WriteString("## Variables\n\n")
	var variables [][]string
	for _, v := range meaning.Variables() {
		variables = append(variables, []string{v.Of, code(v.Name), v.Today, v.Then, effects([]meaning.Severity{v.Severity}, v.Refuses)})
	}
	table(&b, []string{"of", "variable", "with it, Istio's ambient mode", "this mesh", "effect"}, variables)
	var names []string
	for _, name := range meaning.Adopted() {
		names = append(names, code(name))
	}
	fmt.Fprintf(&b, "These of ztunnel's are variables of the node proxy as well; `--set node.env.NAME=VALUE` keeps them: %s.\n\n", strings.Join(names, ", "))
	b.WriteString("## What means the same, although one may doubt it\n\n")
	table(&b, []string{"on", "both meshes"}, same)
	return strings.TrimSuffix(b.String(), "\n")
}

func effects(all []meaning.Severity, refuses bool) string {
	var words []string
	for _, s := range all {
		words = append(words, s.Words())
	}
	text := strings.Join(words, ", or ")
	if refuses {
		text += "; *refuses*"
	}
	return text
}
