package demo

import (
	"fmt"
	"math"
	"strings"
)

// Setting is what the paragraph says about how the numbers came about.
type Setting struct {
	Cores     int
	BlockTime float64        // seconds measured per block
	Rates     map[string]int // requests per second by target
}

// Paragraph says in words what the comparisons show. Every clause depends on the numbers; where the rounds of one side
// differ among themselves as much as the two sides do, it says that instead of a result.
func Paragraph(comparisons []Comparison, s Setting) string {
	var sentences []string
	pairs := 0
	for _, c := range comparisons {
		if c.Pairs == 0 {
			sentences = append(sentences, fmt.Sprintf("For %s no round is good on both sides, so nothing can be said.", c.Target))
			continue
		}
		pairs = max(pairs, c.Pairs)
		sentences = append(sentences, latencySentences(c)...)
		if c.ProxyCPUMicros != nil {
			sentences = append(sentences, cpuSentence(c, s.Rates[c.Target]))
		}
	}
	if pairs > 0 {
		sentences = append(sentences, fmt.Sprintf(
			"All of this rests on at most %s of %.0f s a side on %s that the load generator, the services and the proxies share: it is %s.",
			plural(pairs, "round"), s.BlockTime, plural(s.Cores, "core"), Mark))
	}
	return strings.Join(sentences, " ")
}

func latencySentences(c Comparison) []string {
	if c.Pairs < leastPairs {
		return []string{fmt.Sprintf("%s answered in %s ms on average without the mesh and in %s ms with it, in a single good round, which cannot tell an effect from chance.",
			capital(c.Target), milliseconds(c.None.Avg), milliseconds(c.Mesh.Avg))}
	}
	first := fmt.Sprintf("%s answered in %s ms on average (P50 %s) without the mesh and in %s ms (P50 %s) with it",
		capital(c.Target), milliseconds(c.None.Avg), milliseconds(c.None.P50), milliseconds(c.Mesh.Avg), milliseconds(c.Mesh.P50))
	difference := c.Difference("avg")
	switch c.Verdict("avg") {
	case Faster:
		first += fmt.Sprintf(": %s less, more than the rounds of one side differ (%s ms).", amount(c.None.Avg, difference), milliseconds(c.Spread["avg"]))
	case Slower:
		first += fmt.Sprintf(": encryption, identity and policy added %s, more than the rounds of one side differ (%s ms).",
			amount(c.None.Avg, difference), milliseconds(c.Spread["avg"]))
	case Unclear:
		first += fmt.Sprintf("; the difference of %s is no larger than that among the rounds of one side (%s ms), so this run does not tell them apart",
			amount(c.None.Avg, difference), milliseconds(c.Spread["avg"]))
		if c.Opposed {
			first += ", and the rounds point both ways"
		}
		first += "."
	}
	return []string{first, tailSentence(c)}
}

// tailSentence is about P99 alone, which may go another way than the average.
func tailSentence(c Comparison) string {
	change := amount(c.None.P99, c.Difference("P99"))
	switch c.Verdict("P99") {
	case Faster:
		return fmt.Sprintf("At P99 it was %s faster with the mesh.", change)
	case Slower:
		return fmt.Sprintf("At P99 the mesh cost %s.", change)
	}
	return fmt.Sprintf("At P99 the rounds scatter too much for a verdict (%s against %s ms).", milliseconds(c.None.P99), milliseconds(c.Mesh.P99))
}

func cpuSentence(c Comparison, rate int) string {
	sentence := fmt.Sprintf("The two node proxies together spent %.0f µs of CPU time per request", *c.ProxyCPUMicros)
	if rate > 0 {
		sentence += fmt.Sprintf(", %.1f %% of one core at %d requests a second", *c.ProxyCPUMicros*float64(rate)/1e4, rate)
	}
	return sentence + "."
}

// amount writes a difference in milliseconds and in percent of what it changes, without a sign.
func amount(before, difference float64) string {
	text := milliseconds(math.Abs(difference)) + " ms"
	if p, ok := percent(before, before+difference); ok {
		text += fmt.Sprintf(" (%.0f %%)", math.Abs(p))
	}
	return text
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// wrap breaks a paragraph into lines of at most width characters.
func wrap(text string, width int) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
