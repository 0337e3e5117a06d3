package debian

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// stanza is what an index says of a package, by the names of its fields.
type stanza map[string]string

// parse reads stanzas as apt-cache shows them: fields, one a line, with continuation lines, and an empty line between two.
func parse(r io.Reader) ([]stanza, error) {
	var all []stanza
	current, field := stanza{}, ""
	end := func() {
		if len(current) > 0 {
			all = append(all, current)
		}
		current, field = stanza{}, ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			if field == "" {
				return nil, fmt.Errorf("package index: %.40q continues nothing", line)
			}
			current[field] += "\n" + line
		default:
			name, value, found := strings.Cut(line, ":")
			if !found {
				return nil, fmt.Errorf("package index: %.40q is no field", line)
			}
			field = name
			current[field] = strings.TrimSpace(value)
		}
	}
	end()
	return all, lines.Err()
}

// closure follows the dependencies of a set. Of alternatives the first that exists is taken. Versions are not compared:
// within one suite the packages fit together. It returns as well what was to be left out and nobody asked for.
func closure(set Set, show func(names []string) ([]stanza, error)) (packages []Package, idle []string, err error) {
	found, asked := map[string]Package{}, map[string]bool{}
	skip := func(name string) bool { return slices.Contains(set.Without, name) }
	used := map[string]bool{}
	var wanted []dependency
	for _, name := range set.Want {
		wanted = append(wanted, dependency{by: "the image", names: []string{name}})
	}
	for len(wanted) > 0 {
		var names []string
		for _, d := range wanted {
			for _, name := range d.names {
				if !asked[name] && !skip(name) {
					asked[name] = true
					names = append(names, name)
				}
			}
		}
		stanzas, err := show(names)
		if err != nil {
			return nil, nil, err
		}
		known := map[string]stanza{}
		for _, s := range stanzas {
			known[s["Package"]] = s
		}
		var next []dependency
		for _, d := range wanted {
			name := ""
			for _, candidate := range d.names {
				if skip(candidate) {
					used[candidate] = true
					name = candidate
					break
				}
				if _, is := known[candidate]; is || found[candidate].Name != "" {
					name = candidate
					break
				}
			}
			if name == "" {
				return nil, nil, fmt.Errorf("%s needs %s: Debian %s has no such package for %s", d.by, strings.Join(d.names, " or "), set.Suite, set.Arch)
			}
			if skip(name) || found[name].Name != "" {
				continue
			}
			p, err := known[name].described()
			if err != nil {
				return nil, nil, err
			}
			found[name] = p
			next = append(next, known[name].dependencies()...)
		}
		// Alternatives that were not taken may be wanted by somebody later, and are asked about again then.
		for name := range known {
			if found[name].Name == "" {
				delete(asked, name)
			}
		}
		wanted = next
	}
	for _, name := range set.Without {
		if !used[name] {
			idle = append(idle, name)
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Package) int { return strings.Compare(a.Name, b.Name) }), idle, nil
}

func (s stanza) described() (Package, error) {
	size, err := strconv.ParseInt(s["Size"], 10, 64)
	if err != nil || s["Version"] == "" || len(s["SHA256"]) != 64 {
		return Package{}, fmt.Errorf("package index: %s lacks version, size or SHA-256", s["Package"])
	}
	return Package{Name: s["Package"], Version: s["Version"], SHA256: s["SHA256"], Size: size}, nil
}

// dependency is one that any of the names satisfies.
type dependency struct {
	by    string
	names []string
}

func (s stanza) dependencies() []dependency {
	var all []dependency
	for _, field := range []string{"Pre-Depends", "Depends"} {
		for clause := range strings.SplitSeq(s[field], ",") {
			d := dependency{by: s["Package"]}
			for alternative := range strings.SplitSeq(clause, "|") {
				name, _, _ := strings.Cut(strings.TrimSpace(alternative), " ")
				name, _, _ = strings.Cut(name, ":") // An architecture, as in python3:any.
				name, _, _ = strings.Cut(name, "(")
				if name != "" {
					d.names = append(d.names, name)
				}
			}
			if len(d.names) > 0 {
				all = append(all, d)
			}
		}
	}
	return all
}
