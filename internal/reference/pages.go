package main

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model/wellknown"
)

const made = "<!-- Made by `make reference` from what the programs declare; a test holds it to them. Change it there. -->\n\n"

// table writes rows under a heading of columns.
func table(b *strings.Builder, columns []string, rows [][]string) {
	line := func(cells []string) {
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "|", `\|`), "\n", " ")
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	line(columns)
	fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(columns)))
	for _, row := range rows {
		line(row)
	}
	b.WriteString("\n")
}

// grouped calls each for the groups of items in the order in which they appear.
func grouped[T any](items []T, group func(T) string, each func(name string, members []T)) {
	var order []string
	members := map[string][]T{}
	for _, item := range items {
		g := group(item)
		if !slices.Contains(order, g) {
			order = append(order, g)
		}
		members[g] = append(members[g], item)
	}
	for _, g := range order {
		each(g, members[g])
	}
}

func code(text string) string { return "`" + text + "`" }

// metricsPage fails for a metric without advice, and for advice without a metric.
func metricsPage(metrics []metric) (string, error) {
	byKey := map[string]metric{}
	for _, m := range metrics {
		byKey[m.Program+" "+m.Name] = m
	}
	var connection []string
	if m, ok := byKey[nodeProgram+" istio_tcp_connections_opened_total"]; ok {
		connection = m.Labels
	}
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(metricsIntroduction)
	var unknown []string
	for _, p := range advice {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", p.Program, p.Introduction)
		for _, g := range p.Groups {
			fmt.Fprintf(&b, "### %s\n\n", g.Name)
			var rows [][]string
			for _, a := range g.Metrics {
				m, ok := byKey[p.Program+" "+a.Name]
				if !ok {
					unknown = append(unknown, p.Program+" "+a.Name)
					continue
				}
				delete(byKey, p.Program+" "+a.Name)
				labels := make([]string, 0, len(m.Labels))
				for _, l := range m.Labels {
					labels = append(labels, code(l))
				}
				text := strings.Join(labels, ", ")
				if len(connection) > 0 && slices.Equal(m.Labels, connection) {
					text = "[a connection's](#labels-of-a-connection)"
				}
				rows = append(rows, []string{code(m.Name), m.Kind, text, m.Help, a.Advice})
			}
			table(&b, []string{"metric", "type", "labels", "what", "what to make of it"}, rows)
		}
	}
	if len(unknown) > 0 {
		return "", fmt.Errorf("no program has %s: drop the advice from internal/reference/advice.go", strings.Join(unknown, ", "))
	}
	if len(byKey) > 0 {
		var missing []string
		for _, m := range byKey {
			missing = append(missing, m.Program+" "+m.Name)
		}
		slices.Sort(missing)
		return "", fmt.Errorf("nobody says what to make of %s: add a line to `advice` in internal/reference/advice.go and run `make reference`", strings.Join(missing, ", "))
	}
	b.WriteString(connectionLabels(connection))
	return b.String(), nil
}

func connectionLabels(labels []string) string {
	var b strings.Builder
	b.WriteString("## Labels of a connection\n\n" + connectionIntroduction)
	for _, l := range labels {
		fmt.Fprintf(&b, "`%s` ", l)
	}
	return strings.TrimSpace(b.String()) + "\n"
}

func logPage(connection, request []field) string {
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(logIntroduction)
	accessFields(&b, connection)
	b.WriteString(waypointLogIntroduction)
	accessFields(&b, request)
	b.WriteString(processLogIntroduction)
	var rows [][]string
	for _, f := range logFields {
		rows = append(rows, []string{code(f.Name), f.Meaning})
	}
	table(&b, []string{"field", "what"}, rows)
	return strings.TrimSpace(b.String()) + "\n"
}

func accessFields(b *strings.Builder, fields []field) {
	var rows [][]string
	for _, f := range fields {
		rows = append(rows, []string{code(f.Name), f.When, f.Meaning})
	}
	table(b, []string{"field", "when", "what"}, rows)
}

// ownVariables lists the names of the node proxy's variables that are Lateen's own, one a line. The command line refuses others with their prefix.
func ownVariables(variables []variable) string {
	var b strings.Builder
	for _, v := range variables {
		if strings.HasPrefix(v.Name, "LATEEN_") {
			fmt.Fprintln(&b, v.Name)
		}
	}
	return b.String()
}

func environmentPage(variables []variable) string {
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(environmentIntroduction)
	fmt.Fprintf(&b, "## %s\n\n%s", nodeProgram, nodeEnvironmentIntroduction)
	grouped(variables, func(v variable) string { return v.Group }, func(name string, members []variable) {
		fmt.Fprintf(&b, "### %s\n\n", name)
		var rows [][]string
		for _, v := range members {
			rows = append(rows, []string{code(v.Name), v.Form, v.Default, v.Meaning, v.Origin})
		}
		table(&b, []string{"variable", "form", "default", "what", "whose name"}, rows)
	})
	b.WriteString("## The other programs' variables\n\n")
	var rows [][]string
	for _, v := range goVariables {
		rows = append(rows, []string{code(v.Name), v.Program, v.Meaning})
	}
	table(&b, []string{"variable", "program", "what"}, rows)
	for _, program := range []struct {
		introduction string
		verbs        []verb
	}{
		{controlFlagsIntroduction, controlVerbs()}, {agentFlagsIntroduction, agentVerbs()}, {cliFlagsIntroduction, cliVerbs()},
	} {
		b.WriteString(program.introduction)
		for _, v := range program.verbs {
			fmt.Fprintf(&b, "### %s\n\n%s.\n\n", v.Name, strings.TrimSuffix(sentence(v.Meaning), "."))
			var rows [][]string
			for _, o := range v.Options {
				rows = append(rows, []string{code(o.Name), o.Form, o.Default, o.Meaning})
			}
			table(&b, []string{"flag", "form", "default", "what"}, rows)
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

func sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func annotationsPage() string {
	var b strings.Builder
	b.WriteString(made)
	b.WriteString(annotationsIntroduction)
	grouped(wellknown.Keys, func(k wellknown.Key) string { return k.Group }, func(name string, members []wellknown.Key) {
		fmt.Fprintf(&b, "## %s\n\n", name)
		if text := annotationGroups[name]; text != "" {
			b.WriteString(text + "\n\n")
		}
		var rows [][]string
		for _, k := range members {
			values := k.Values
			if values == "" {
				values = "–"
			}
			rows = append(rows, []string{code(k.Name), string(k.Kind), k.On, values, k.Meaning, k.Who})
		}
		table(&b, []string{"name", "kind", "on", "values", "what", "who"}, rows)
	})
	return strings.TrimSpace(b.String()) + "\n"
}
