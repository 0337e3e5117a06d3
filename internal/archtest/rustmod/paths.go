package rustmod

import "slices"

// declaration is one name that a `use` brings in.
type declaration struct {
	path []string
	// name is how the module calls it; "*" for all names of a module.
	name string
	// exported tells that others may use it from here.
	exported bool
}

// declarations lists what the `use` declarations among tokens bring in.
func declarations(tokens []string) []declaration {
	var all []declaration
	for i := 0; i < len(tokens); i++ {
		if tokens[i] != "use" {
			continue
		}
		end := i + 1 + slices.Index(tokens[i+1:], ";")
		if end == i { // precise capturing in a type: use<>
			continue
		}
		if tokens[i+1] != "<" {
			all = append(all, expand(tokens[i+1:end], nil, isExported(tokens[:i]))...)
			i = end
		}
	}
	return all
}

// isExported says whether the tokens before a `use` make it a re-export.
func isExported(before []string) bool {
	n := len(before)
	if n > 0 && before[n-1] == ")" {
		for n > 0 && before[n-1] != "(" {
			n--
		}
		n--
	}
	return n > 0 && before[n-1] == "pub"
}

// expand reads a tree of names.
func expand(tree, prefix []string, exported bool) []declaration {
	path := slices.Clone(prefix)
	for i := 0; i < len(tree); i++ {
		switch tree[i] {
		case "::":
		case "{":
			var all []declaration
			for _, part := range split(tree[i+1 : closing(tree, i)-1]) {
				all = append(all, expand(part, path, exported)...)
			}
			return all
		case "as":
			return []declaration{{path, tree[i+1], exported}}
		case "*":
			return []declaration{{path, "*", exported}}
		case "self":
			if len(path) == 0 {
				path = append(path, "self")
			}
		default:
			path = append(path, tree[i])
		}
	}
	if len(path) == 0 {
		return nil
	}
	return []declaration{{path, path[len(path)-1], exported}}
}

// split cuts a list at the commas that are in no inner braces or parentheses.
func split(list []string) [][]string {
	var parts [][]string
	depth, start := 0, 0
	for i, t := range list {
		switch t {
		case "{", "(":
			depth++
		case "}", ")":
			depth--
		case ",":
			if depth == 0 {
				parts = append(parts, list[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, list[start:])
}

// used lists the paths that a module's own code depends on: its imports but for re-exports that it does not use itself, and the
// paths in its code. A path of one segment is no path of another module, unless it is imported.
func used(tokens []string) [][]string {
	var all [][]string
	named := mentioned(tokens)
	for _, d := range declarations(tokens) {
		if !d.exported || named[d.name] {
			all = append(all, d.path)
		}
	}
	for i := 0; i < len(tokens); i++ {
		if tokens[i] == "use" && i+1 < len(tokens) && tokens[i+1] != "<" {
			for i < len(tokens) && tokens[i] != ";" {
				i++
			}
			continue
		}
		if i > 0 && tokens[i-1] == "::" || i+1 >= len(tokens) || tokens[i+1] != "::" {
			continue
		}
		path := []string{tokens[i]}
		for j := i; j+2 < len(tokens) && tokens[j+1] == "::" && isName(rune(tokens[j+2][0])); j += 2 {
			path = append(path, tokens[j+2])
		}
		if len(path) > 1 {
			all = append(all, path)
		}
	}
	return all
}

// mentioned are the names with which code outside of `use` declarations begins a path or an expression. Fields and methods are none.
func mentioned(tokens []string) map[string]bool {
	names := map[string]bool{}
	for i := 0; i < len(tokens); i++ {
		if tokens[i] == "use" && i+1 < len(tokens) && tokens[i+1] != "<" {
			for i < len(tokens) && tokens[i] != ";" {
				i++
			}
			continue
		}
		before, after := "", ""
		if i > 0 {
			before = tokens[i-1]
		}
		if i+1 < len(tokens) {
			after = tokens[i+1]
		}
		switch {
		case before == "::", before == ".", before == "mod", before == "fn", before == "let", after == ":":
		case isName(rune(tokens[i][0])):
			names[tokens[i]] = true
		}
	}
	return names
}
