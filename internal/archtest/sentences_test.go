package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostWords is how long a sentence of the pages for users may be, in words. Most should have no more than 25.
const mostWords = 40

// TestSentencesAreShort looks at the pages of the repository, but not at reports of experiments.
func TestSentencesAreShort(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := []string{filepath.Join(root, "docs", "glossary.md")}
	for _, dir := range []string{"guide", "design", "reference"} {
		found, err := filepath.Glob(filepath.Join(root, "docs", dir, "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s: found %d pages: %v", dir, len(found), err)
		}
		pages = append(pages, found...)
	}
	for _, name := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		pages = append(pages, filepath.Join(root, name))
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sentences(string(text)) {
			if n := words(s.text); n > mostWords {
				t.Errorf("%s:%d: a sentence of %d words, at most %d; split it: %s", filepath.Base(page), s.line, n, mostWords, shortened(s.text))
			}
		}
	}
}

func shortened(text string) string {
	if r := []rune(text); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return text
}

// sentence is one of a page in Markdown, with the line that it begins in.
type sentence struct {
	line int
	text string
}

var (
	// listItem begins an item of a list.
	listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d+\.)\s+`)
	// endOfSentence is followed by a sentence of its own: the next word has a capital, or is emphasised, quoted, linked or code.
	endOfSentence = regexp.MustCompile("[.!?][)\"*_]*\\s+[\"*_\\[(`]*[A-Z`]")
	// link is an inline link, of which readers see the text.
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	code = regexp.MustCompile("`[^`]*`")
	// target is what an inline link leads to.
	target = regexp.MustCompile(`\]\([^)]*\)`)
)

// unread covers code and the targets of links, in which no sentence ends, with as many other characters.
func unread(text string) string {
	cover := func(s string) string { return s[:1] + strings.Repeat("x", len(s)-2) + s[len(s)-1:] }
	return target.ReplaceAllStringFunc(code.ReplaceAllStringFunc(text, cover), cover)
}

// sentences splits the prose of a page. Code blocks, tables and headings have none. An item of a list ends a sentence.
func sentences(page string) []sentence {
	var list []sentence
	var paragraph []string
	begin := 0
	flush := func() {
		text := strings.Join(paragraph, "\n")
		paragraph = nil
		line := begin
		for text != "" {
			end := len(text)
			if at := endOfSentence.FindStringIndex(unread(text)); at != nil {
				end = at[0] + 1
			}
			part := text[:end]
			if trimmed := strings.Join(strings.Fields(part), " "); trimmed != "" {
				list = append(list, sentence{line + strings.Count(part[:len(part)-len(strings.TrimLeft(part, " \n\t"))], "\n"), trimmed})
			}
			line += strings.Count(part, "\n")
			text = text[end:]
		}
	}
	fenced := false
	for i, line := range strings.Split(page, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			fenced = !fenced
			continue
		case fenced:
			continue
		case trimmed == "", strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "<"):
			flush()
			continue
		case listItem.MatchString(line):
			flush()
			line = listItem.ReplaceAllString(line, "")
		}
		if len(paragraph) == 0 {
			begin = i + 1
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return list
}

// words counts what a reader reads: code and the text of a link count as they are seen, a span of code as one word.
func words(text string) int {
	text = link.ReplaceAllString(text, "$1")
	text = code.ReplaceAllString(text, "code")
	return len(slices.DeleteFunc(strings.Fields(text), func(w string) bool { return strings.Trim(w, "–—-→·*") == "" }))
}

func TestSentences(t *testing.T) {
	page := "# A heading. With two\n\nOne is `a. B c` here. *Two*\nis there? Three\n\n- an item\n  goes on. Four\n- next\n\n```\nNo sentence. None\n```\n| a. B | c |\n1. Version 1.30 stays, e.g. in one. [Five](x. Y) ends.\n"
	var got []string
	for _, s := range sentences(page) {
		got = append(got, fmt.Sprintf("%d %s", s.line, s.text))
	}
	want := []string{"3 One is `a. B c` here.", "3 *Two* is there?", "4 Three", "6 an item goes on.", "7 Four", "8 next", "14 Version 1.30 stays, e.g. in one.", "14 [Five](x. Y) ends."}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := words("See [the page about cost](../reference/a b.md): `lateen get pods` – that is *it*."); n != 9 {
		t.Errorf("%d words, want 9", n)
	}
}
