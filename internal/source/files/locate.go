package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// join appends a field to a path; either may be empty.
func join(path, field string) string {
	switch {
	case path == "":
		return field
	case field == "":
		return path
	case strings.HasPrefix(field, "["):
		return path + field
	}
	return path + "." + field
}

// lastName is the last field name of a path: "protcol" of "spec.ports[0].protcol".
func lastName(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	name, _, _ := strings.Cut(path, "[")
	return name
}

// lineOf finds the file's line of a field path in a document's YAML tree. A part of the path that is not there
// (a missing field) yields the line of the deepest part that is.
func lineOf(root *yamlv3.Node, docLine, start int, path string) int {
	node := root
	if node.Kind == yamlv3.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := start
	// An alias may point to an ancestor, so the walk is bounded by the path, not by the tree.
	for path != "" {
		for node.Kind == yamlv3.AliasNode && node.Alias != nil {
			node = node.Alias
		}
		if strings.HasPrefix(path, "[") {
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return line
			}
			i, err := strconv.Atoi(path[1:end])
			if err != nil || node.Kind != yamlv3.SequenceNode || i < 0 || i >= len(node.Content) {
				return line
			}
			node = node.Content[i]
			line = docLine + node.Line - 1
			path = strings.TrimPrefix(path[end+1:], ".")
			continue
		}
		key, value, rest := child(node, path)
		if value == nil {
			return line
		}
		node, line, path = value, docLine+key.Line-1, rest
	}
	return line
}

// child finds the entry of a mapping that starts path. Label keys hold dots, so the longest key that fits wins.
func child(node *yamlv3.Node, path string) (key, value *yamlv3.Node, rest string) {
	if node.Kind != yamlv3.MappingNode {
		return nil, nil, ""
	}
	best := -1
	for i := 0; i+1 < len(node.Content); i += 2 {
		k := node.Content[i].Value
		if len(k) <= best || !strings.HasPrefix(path, k) {
			continue
		}
		after := path[len(k):]
		if after != "" && after[0] != '.' && after[0] != '[' {
			continue
		}
		best = len(k)
		key, value, rest = node.Content[i], node.Content[i+1], strings.TrimPrefix(after, ".")
	}
	return key, value, rest
}

// byteOffset turns a 1-based column, counted in characters, of one-line JSON into a byte offset.
func byteOffset(line []byte, column int) int64 {
	offset := 0
	for i := 1; i < column && offset < len(line); i++ {
		_, size := utf8.DecodeRune(line[offset:])
		offset += size
	}
	return int64(offset)
}

// pathAt names the field of a JSON text in which offset falls: "rules[0].from".
func pathAt(raw []byte, offset int64) string {
	type level struct {
		array bool
		index int
		name  string
		key   bool // the next string is a field name
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var stack []level
	render := func() string {
		path := ""
		for _, l := range stack {
			switch {
			case l.array:
				path = join(path, fmt.Sprintf("[%d]", l.index))
			case l.name != "":
				path = join(path, l.name)
			}
		}
		return path
	}
	// closed moves to the next element after a value ended.
	closed := func() {
		if len(stack) == 0 {
			return
		}
		top := &stack[len(stack)-1]
		if top.array {
			top.index++
		} else {
			top.key = true
		}
	}
	for {
		token, err := dec.Token()
		if err != nil {
			return render()
		}
		end := dec.InputOffset()
		if d, ok := token.(json.Delim); ok && (d == ']' || d == '}') {
			if end >= offset {
				return render()
			}
			stack = stack[:len(stack)-1]
			closed()
			continue
		}
		if len(stack) > 0 {
			if top := &stack[len(stack)-1]; !top.array && top.key {
				top.name, _ = token.(string)
				top.key = false
				// A key is still in front of an offset that points to its value's first byte.
				if end > offset {
					return render()
				}
				continue
			}
		}
		if end > offset || end == int64(len(raw)) || (end == offset && !isOpen(token)) {
			return render()
		}
		if d, ok := token.(json.Delim); ok {
			stack = append(stack, level{array: d == '[', key: d == '{'})
			continue
		}
		closed()
	}
}

func isOpen(token json.Token) bool {
	_, ok := token.(json.Delim)
	return ok
}
