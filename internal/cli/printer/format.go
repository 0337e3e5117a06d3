// Package printer turns answers into text: aligned tables for people, JSON and YAML for programs. It knows the
// shapes of objects and of the mesh's state, and writes nothing by itself but to the writer it is given.
package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Format is how an answer is written.
type Format string

// The formats. Wide is a table with more columns; Name is one kind/name a line, to be used in other commands.
const (
	Table Format = "table"
	Wide  Format = "wide"
	Name  Format = "name"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists every format.
func Formats() []Format { return []Format{Table, Wide, Name, JSON, YAML} }

// ParseFormat reads the value of -o among those that a command offers.
func ParseFormat(s string, offered ...Format) (Format, error) {
	if f := Format(s); slices.Contains(offered, f) {
		return f, nil
	}
	words := make([]string, len(offered))
	for i, f := range offered {
		words[i] = string(f)
	}
	return "", fmt.Errorf("unknown output format %q; use one of %s", s, strings.Join(words, ", "))
}

// Structured reports whether the format is for programs.
func (f Format) Structured() bool { return f == JSON || f == YAML }

// Write writes a value in a structured format, with the names of its JSON form in both.
func Write(w io.Writer, f Format, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	text = append(text, '\n')
	if f == YAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	_, err = w.Write(text)
	return err
}
