package printer

import (
	"fmt"
	"io"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// Plan writes what an installation would do: what changes as a table, what stays as a count.
func Plan(w io.Writer, p install.Plan) error {
	for i, move := range p.Before {
		if _, err := fmt.Fprintf(w, "%d. %s\n", i+1, move); err != nil {
			return err
		}
	}
	g := NewGrid("ACTION", "OBJECT", "WHAT")
	for _, s := range p.Steps {
		if s.Action == install.Unchanged && s.Why == "" {
			continue
		}
		what := s.Why
		if len(s.Fields) > 0 {
			what = strings.TrimPrefix(what+"; "+strings.Join(s.Fields, ", "), "; ")
		}
		g.Row(string(s.Action), api.Key{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}.String(), what)
	}
	if g.Len() > 0 {
		if err := g.Print(w, ""); err != nil {
			return err
		}
	}
	version := p.Version
	if p.From != "" {
		version = "from " + p.From + " to " + version
	}
	_, err := fmt.Fprintf(w, "Lateen %s in namespace %s: %s\n", version, p.Namespace, counts(p, "to create", "to change", "to delete"))
	return err
}

// PlanCounts is how many objects a plan that was carried out was about, in words.
func PlanCounts(p install.Plan) string { return counts(p, "created", "changed", "deleted") }

func counts(p install.Plan, create, change, remove string) string {
	var parts []string
	for _, a := range []struct {
		action install.Action
		word   string
	}{{install.Create, create}, {install.Change, change}, {install.Delete, remove}, {install.Unchanged, "unchanged"}, {install.Keep, "left alone"}} {
		if n := p.Count(a.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, a.word))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}
