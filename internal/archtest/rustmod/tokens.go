package rustmod

import (
	"strings"
	"unicode"
)

// tokenize splits Rust source into identifiers and punctuation. Comments, literals and lifetimes are left out; "::" is one token.
func tokenize(text string) []string {
	var tokens []string
	s := []rune(text)
	at := func(i int) rune {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	for i := 0; i < len(s); {
		switch r := s[i]; {
		case unicode.IsSpace(r):
			i++
		case r == '/' && at(i+1) == '/':
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case r == '/' && at(i+1) == '*':
			i = endOfComment(s, i)
		case r == '"':
			i = endOfString(s, i)
		case r == '\'':
			i = endOfQuote(s, i)
		case isName(r):
			start := i
			for i < len(s) && isName(s[i]) {
				i++
			}
			word := string(s[start:i])
			switch {
			case strings.ContainsAny(word, "r") && len(word) <= 2 && (at(i) == '"' || at(i) == '#' && (at(i+1) == '"' || at(i+1) == '#')):
				i = endOfRaw(s, i)
			case word == "b" && at(i) == '"', word == "c" && at(i) == '"':
				i = endOfString(s, i)
			case word == "b" && at(i) == '\'':
				i = endOfQuote(s, i)
			case !unicode.IsDigit(s[start]):
				tokens = append(tokens, word)
			}
		case r == ':' && at(i+1) == ':':
			tokens = append(tokens, "::")
			i += 2
		default:
			tokens = append(tokens, string(r))
			i++
		}
	}
	return tokens
}

func isName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// endOfComment is the place behind a block comment; block comments nest.
func endOfComment(s []rune, i int) int {
	depth := 0
	for ; i+1 < len(s); i++ {
		switch {
		case s[i] == '/' && s[i+1] == '*':
			depth++
			i++
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// endOfString is the place behind the string that begins at i.
func endOfString(s []rune, i int) int {
	for i++; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// endOfRaw is the place behind a raw string, whose hashes or quote are at i.
func endOfRaw(s []rune, i int) int {
	hashes := 0
	for ; i < len(s) && s[i] == '#'; i++ {
		hashes++
	}
	end := "\"" + strings.Repeat("#", hashes)
	rest := string(s[min(i+1, len(s)):])
	found := strings.Index(rest, end)
	if found < 0 {
		return len(s)
	}
	return i + 1 + len([]rune(rest[:found])) + len(end)
}

// endOfQuote is the place behind a character, or behind a lifetime.
func endOfQuote(s []rune, i int) int {
	if i+2 < len(s) && s[i+1] == '\\' {
		for i += 3; i < len(s) && s[i] != '\''; i++ {
		}
		return i + 1
	}
	if i+2 < len(s) && s[i+2] == '\'' {
		return i + 3
	}
	for i++; i < len(s) && isName(s[i]); i++ {
	}
	return i
}

// withoutTests leaves out the items, fields and statements that only tests have.
func withoutTests(tokens []string) []string {
	var rest []string
	for i := 0; i < len(tokens); {
		if tokens[i] == "#" && i+1 < len(tokens) && tokens[i+1] == "[" {
			end := closing(tokens, i+1)
			if isTest(tokens[i+2 : max(i+2, end-1)]) {
				i = endOfItem(tokens, end)
				continue
			}
			i = end // attributes name no modules
			continue
		}
		rest = append(rest, tokens[i])
		i++
	}
	return rest
}

// isTest says whether an attribute keeps something for tests: its condition cannot be true without `test`.
func isTest(attribute []string) bool {
	if len(attribute) < 4 || attribute[0] != "cfg" {
		return false
	}
	possible, _ := condition(attribute[2 : len(attribute)-1])
	return !possible
}

// condition says whether a condition of cfg can be true, and whether it can be false, where `test` is false and nothing is known of
// the other names.
func condition(tokens []string) (canBeTrue, canBeFalse bool) {
	if len(tokens) == 1 && tokens[0] == "test" {
		return false, true
	}
	if len(tokens) < 3 || tokens[1] != "(" {
		return true, true
	}
	any := tokens[0] == "any"
	canBeTrue, canBeFalse = !any, any
	for _, part := range split(tokens[2 : len(tokens)-1]) {
		if len(part) == 0 {
			continue // behind the last comma
		}
		yes, no := condition(part)
		switch tokens[0] {
		case "not":
			return no, yes
		case "any":
			canBeTrue, canBeFalse = canBeTrue || yes, canBeFalse && no
		default:
			canBeTrue, canBeFalse = canBeTrue && yes, canBeFalse || no
		}
	}
	return canBeTrue, canBeFalse
}

// flattened gives the paths in modules without a file of their own the meaning that they have in the file: one `super` less for each.
func flattened(tokens []string) []string {
	var flat []string
	var ends []int // of the modules around, as places in tokens
	for i := 0; i < len(tokens); i++ {
		for len(ends) > 0 && i >= ends[len(ends)-1] {
			ends = ends[:len(ends)-1]
		}
		if i+2 < len(tokens) && tokens[i] == "mod" && tokens[i+2] == "{" {
			ends = append(ends, closing(tokens, i+2))
		}
		if len(ends) == 0 || tokens[i] != "super" || i > 0 && tokens[i-1] == "::" {
			flat = append(flat, tokens[i])
			continue
		}
		count, last := 1, i
		for last+2 < len(tokens) && tokens[last+1] == "::" && tokens[last+2] == "super" {
			count, last = count+1, last+2
		}
		i = last
		if count <= len(ends) {
			flat = append(flat, "self")
			continue
		}
		for n := range count - len(ends) {
			if n > 0 {
				flat = append(flat, "::")
			}
			flat = append(flat, "super")
		}
	}
	return flat
}

// closing is the place behind the bracket that closes the one at i.
func closing(tokens []string, i int) int {
	depth := 0
	for ; i < len(tokens); i++ {
		switch tokens[i] {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(tokens)
}

// endOfItem is the place behind what an attribute that ends before i belongs to: an item, a statement or a field.
func endOfItem(tokens []string, i int) int {
	for i+1 < len(tokens) && tokens[i] == "#" && tokens[i+1] == "[" {
		i = closing(tokens, i+1)
	}
	field := i
	if field < len(tokens) && tokens[field] == "pub" {
		if field++; field < len(tokens) && tokens[field] == "(" {
			field = closing(tokens, field)
		}
	}
	isField := field+1 < len(tokens) && tokens[field+1] == ":"
	for i < len(tokens) {
		switch tokens[i] {
		case ";":
			return i + 1
		case ",":
			if isField {
				return i + 1
			}
			i++
		case "{":
			return closing(tokens, i)
		case "(", "[":
			i = closing(tokens, i)
		case "}":
			return i // the end of what holds the last field
		default:
			i++
		}
	}
	return len(tokens)
}
