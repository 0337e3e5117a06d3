package isotope

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Graphviz writes the topology in the DOT language, as isotope draws it: a table for each service with a row for each step of
// its script, and an edge from the step to the service that it calls. A circle that no request comes out of is red.
func (t *Topology) Graphviz(w io.Writer) error {
	var b strings.Builder
	b.WriteString("digraph {\n  node [fontsize=\"16\", fontname=\"courier\", shape=plaintext];\n")
	entrypoints := t.Entrypoints()
	for i := range t.Services {
		s := &t.Services[i]
		border := 1
		if slices.Contains(entrypoints, s.Name) {
			border = 3
		}
		fmt.Fprintf(&b, "\n  %q [label=<\n<TABLE BORDER=\"0\" CELLBORDER=\"%d\" CELLSPACING=\"0\">\n  <TR><TD><B>%s</B>%s</TD></TR>\n", s.Name, border, s.Name, s.caption())
		for j, step := range s.Script {
			var lines []string
			for _, c := range step.Commands {
				lines = append(lines, html.EscapeString(c.caption()))
			}
			if len(lines) == 0 {
				lines = []string{"-"} // Graphviz refuses an empty cell
			}
			fmt.Fprintf(&b, "  <TR><TD PORT=\"%d\">%s</TD></TR>\n", j, strings.Join(lines, "<BR/>"))
		}
		b.WriteString("</TABLE>>];\n")
	}
	circle := t.Endless()
	endless := func(from, to string) bool {
		for i := 1; i < len(circle); i++ {
			if circle[i-1] == from && circle[i] == to {
				return true
			}
		}
		return false
	}
	b.WriteString("\n")
	for i := range t.Services {
		s := &t.Services[i]
		for j, step := range s.Script {
			for _, c := range step.Commands {
				if c.Call == nil {
					continue
				}
				var attributes []string
				if !c.Call.certain() {
					attributes = append(attributes, fmt.Sprintf("style=dashed, label=\"%d%%\"", c.Call.Probability))
				}
				if endless(s.Name, c.Call.Service) && s.ErrorRate == 0 && c.Call.certain() {
					attributes = append(attributes, "color=red")
				}
				ending := ""
				if len(attributes) > 0 {
					ending = " [" + strings.Join(attributes, ", ") + "]"
				}
				fmt.Fprintf(&b, "  %q:%d -> %q%s\n", s.Name, j, c.Call.Service, ending)
			}
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// caption is what a service's table says below its name.
func (s *Service) caption() string {
	lines := []string{"", "type: " + s.Type, "fails: " + percentString(s.ErrorRate), "answers: " + sizeString(s.ResponseSize)}
	if s.Replicas != 1 {
		lines = append(lines, "replicas: "+strconv.Itoa(s.Replicas))
	}
	if s.Namespace != "" {
		lines = append(lines, "namespace: "+s.Namespace)
	}
	if s.Cluster != "" {
		lines = append(lines, "cluster: "+s.Cluster)
	}
	return strings.Join(lines, "<BR/>")
}

func (c Command) caption() string {
	if c.Call == nil {
		return "sleep " + c.Sleep.String()
	}
	text := "call " + c.Call.Service + " " + sizeString(c.Call.Size)
	if !c.Call.certain() {
		text += fmt.Sprintf(", %d%%", c.Call.Probability)
	}
	return text
}
