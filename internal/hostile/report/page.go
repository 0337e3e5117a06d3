package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Peers are the proxies of the page, in the order of its columns.
var Peers = []string{"envoy", "nginx", "haproxy"}

// columns are the words for them.
var columns = map[string]string{"envoy": "Envoy", "nginx": "nginx", "haproxy": "HAProxy"}

// Row is what proxies make of the cases of a rule in another way than this mesh.
type Row struct {
	Rule string
	// Here are the outcomes of this mesh in cases with a difference.
	Here Words
	// Peers are the differences of each peer. A peer without one does as this mesh.
	Peers map[string]Words
	// Why is the reason for the difference; a person writes it.
	Why string
}

// Words is a sorted set.
type Words []string

// Add puts a word into the set.
func (w *Words) Add(word string) {
	if at, found := slices.BinarySearch(*w, word); !found {
		*w = slices.Insert(*w, at, word)
	}
}

func (w Words) cell() string {
	if len(w) == 0 {
		return "–"
	}
	return strings.Join(w, "; ")
}

func parseCell(cell string) Words {
	if cell == "–" {
		return nil
	}
	return strings.Split(cell, "; ")
}

const introduction = `# Reference: hostile requests, and what other proxies make of them

A run sends thousands of raw requests through a waypoint, Envoy, nginx and HAProxy, and compares what reaches the server behind each.
Where a proxy does otherwise than a waypoint, this page has a row with the reason. A difference without a row fails the run, and so
does a row without a difference.

| question | answer |
|---|---|
| who compares | ` + "`internal/tools/hostilehttp`" + `, which ` + "`tests/accept/54-hostile-http.sh`" + ` runs with a fixed seed, and ` + "`make test-long`" + ` with others |
| what are equal outcomes | the same requests reach the server: method, path, host, fields, content and trailers. Or all refuse, by a status of 400 or more, a reset or a close |
| how is Envoy configured | as Istio configures a waypoint: BASE normalisation, escaped slashes kept, WebSocket allowed |
| which versions | the Envoy of ` + "`hack/envoy.sh`" + `, nginx 1.22 and HAProxy 2.6, as Debian 12 has them. Another nginx or HAProxy is left out, and counts as skipped |
| how are nginx and HAProxy configured | as plain proxies, with limits on heads as in Envoy. They get the client's host, and deny the path ` + "`/admin`" + ` by the rule that their manuals have for it |
| what fails whatever others do | a server gets more requests than were sent, a request that a strict reader or a policy refuses, a path that policies see in another form, or a field by which a client speaks as a proxy. One is enough, and so is one that comes late |

At most one request in fourteen breaks two rules at once. Such requests are judged by the last row of the table above alone.

Words in the table below: a proxy *forwards*, *refuses*, *answers* by itself, or *waits* for more. *Forwards what is invalid* means that a
strict reader behind the proxy refuses what it got. *Other path* and the like mean that both forward, and the server gets another one.

## Differences

`

// Render makes the page of rows.
func Render(rows []Row) string {
	var b strings.Builder
	b.WriteString(introduction)
	b.WriteString("| rule | waypoint |")
	for _, p := range Peers {
		b.WriteString(" " + columns[p] + " |")
	}
	b.WriteString(" why |\n|" + strings.Repeat("---|", len(Peers)+3) + "\n")
	for _, r := range rows {
		cells := []string{r.Rule, r.Here.cell()}
		for _, p := range Peers {
			cells = append(cells, r.Peers[p].cell())
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(cells, " | "), r.Why)
	}
	return b.String()
}

// Parse reads the rows of a page.
func Parse(page string) ([]Row, error) {
	_, table, found := strings.Cut(page, "\n## Differences\n")
	if !found {
		return nil, fmt.Errorf("the page has no section Differences")
	}
	var rows []Row
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| rule |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != len(Peers)+3 {
			return nil, fmt.Errorf("a row has %d cells, not %d: %s", len(cells), len(Peers)+3, line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		row := Row{Rule: cells[0], Here: parseCell(cells[1]), Peers: map[string]Words{}, Why: cells[len(cells)-1]}
		for i, p := range Peers {
			if words := parseCell(cells[2+i]); words != nil {
				row.Peers[p] = words
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// Table is the rows by rule.
type Table map[string]*Row

// TableOf makes a table of rows.
func TableOf(rows []Row) Table {
	t := Table{}
	for _, r := range rows {
		t[r.Rule] = &r
	}
	return t
}

func (t Table) row(rule string) *Row {
	r := t[rule]
	if r == nil {
		r = &Row{Rule: rule, Peers: map[string]Words{}}
		t[rule] = r
	}
	return r
}

// Note adds a difference of a peer.
func (t Table) Note(rule, peer, here string, differences []string) {
	r := t.row(rule)
	r.Here.Add(here)
	words := r.Peers[peer]
	for _, d := range differences {
		words.Add(d)
	}
	r.Peers[peer] = words
}

// Covers reports whether the table has a peer's differences in a rule.
func (t Table) Covers(rule, peer string, differences []string) bool {
	r := t[rule]
	if r == nil {
		return false
	}
	return !slices.ContainsFunc(differences, func(d string) bool { return !slices.Contains(r.Peers[peer], d) })
}

// Unlisted says what was observed and is not on the page.
func Unlisted(page, observed Table) []string {
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(observed)) {
		for _, peer := range Peers {
			for _, d := range observed[rule].Peers[peer] {
				if !page.Covers(rule, peer, []string{d}) {
					list = append(list, fmt.Sprintf("%s: %s: %s; the waypoint %s", rule, columns[peer], d, observed[rule].Here.cell()))
				}
			}
		}
	}
	return list
}

// Gone says what is on the page and was not observed, of the peers that were there.
func Gone(page, observed Table, present []string) []string {
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(page)) {
		for _, peer := range present {
			for _, d := range page[rule].Peers[peer] {
				if !observed.Covers(rule, peer, []string{d}) {
					list = append(list, fmt.Sprintf("%s: %s: %s", rule, columns[peer], d))
				}
			}
		}
	}
	return list
}

// GoneRules are the rules that Gone speaks of.
func GoneRules(page, observed Table, present []string) []string {
	var rules []string
	for rule, row := range page {
		if len(Gone(Table{rule: row}, observed, present)) > 0 {
			rules = append(rules, rule)
		}
	}
	return rules
}

// Merge adds the differences of another table.
func (t Table) Merge(other Table) {
	for rule, row := range other {
		for peer, words := range row.Peers {
			for _, here := range row.Here {
				t.Note(rule, peer, here, words)
			}
		}
	}
}

// Update takes what was observed of the present peers for what the page says of them. Reasons stay. Rows come in the order of rules.
func Update(page, observed Table, present, rules []string) []Row {
	var rows []Row
	for _, rule := range rules {
		row := Row{Rule: rule, Peers: map[string]Words{}}
		if old := page[rule]; old != nil {
			row.Why = old.Why
			for peer, words := range old.Peers {
				if !slices.Contains(present, peer) {
					row.Peers[peer] = words
					row.Here = old.Here
				}
			}
		}
		if seen := observed[rule]; seen != nil {
			for _, word := range seen.Here {
				row.Here.Add(word)
			}
			for peer, words := range seen.Peers {
				row.Peers[peer] = words
			}
		}
		if len(row.Peers) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// Unreasoned names the rules whose rows say no reason.
func Unreasoned(rows []Row) []string {
	var list []string
	for _, r := range rows {
		if r.Why == "" {
			list = append(list, r.Rule)
		}
	}
	return list
}
