package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/install"
)

// probeDrift looks for what somebody has removed or changed of the installation's own objects. A part that has lost a right fails at what it does
// seldom, and an admission policy that is gone says nothing at all.
func probeDrift(ctx context.Context, t *Target) (string, *Finding) {
	switch r := t.Record; {
	case r == nil:
		return "", t.absent()
	case r.LostError() != nil || r.State != "installed":
		return "", mild("see LAT120", "not known: it is not wholly installed")
	case r.Version != t.Version:
		return "", mild("use the lateen of "+r.Version, "not known: this program has %s, and knows how the parts of that version are", t.Version)
	}
	drift, err := t.Cluster.Drift(ctx, t.Options, t.Record)
	if err != nil {
		problem := unable(err)
		problem.Mild = true
		problem.Cause = "not known: " + problem.Cause
		return "", problem
	}
	var wrong []string
	for _, s := range drift {
		if s.Action == install.Create {
			wrong = append(wrong, s.Called()+" is missing")
		} else {
			said := fmt.Sprintf("%s is changed (%s)", s.Called(), strings.Join(s.Fields, ", "))
			if s.Why != "" {
				said += "; " + s.Why
			}
			wrong = append(wrong, said)
		}
	}
	if len(wrong) == 0 {
		return "nothing is missing or changed", nil
	}
	fix := "lateen upgrade puts them right (--dry-run shows how); a change that is to stay becomes a value, with --set or --values"
	if t.Record.Helm {
		fix = fmt.Sprintf("helm upgrade lateen charts/lateen --namespace %s --reset-then-reuse-values makes them again", t.Record.Namespace)
	}
	problem := finding(fix, "%s", some(wrong))
	problem.Mild = !slices.ContainsFunc(drift, install.Step.Guards)
	return "", problem
}
