package files

import (
	"bytes"
)

// document is one YAML document of a stream and the line on which it starts.
type document struct {
	text []byte
	line int // 1-based
}

// split cuts a stream at its "---" lines. It does so by text, as the Kubernetes tools do, so that a document
// that does not parse takes none of its neighbours with it.
func split(data []byte) []document {
	var docs []document
	start, startLine := 0, 1
	line := 1
	for pos := 0; pos < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if isSeparator(data[pos:end]) {
			docs = append(docs, document{data[start:pos], startLine})
			// Content may follow on the separator's own line ("--- {a: b}").
			start, startLine = pos+3, line
		}
		pos = end
	}
	docs = append(docs, document{data[start:], startLine})
	kept := docs[:0]
	for _, d := range docs {
		if !blank(d.text) {
			kept = append(kept, d)
		}
	}
	return kept
}

func isSeparator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// blank says whether a document holds nothing but white space and comments.
func blank(text []byte) bool {
	for l := range bytes.Lines(text) {
		l = bytes.TrimSpace(l)
		if len(l) > 0 && l[0] != '#' {
			return false
		}
	}
	return true
}
