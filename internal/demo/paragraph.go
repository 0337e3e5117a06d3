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

// Paragraph says in words what the comparisons show. Every clause depends on the numbers; where the rounds of the two
// sides overlap, it says that instead of a result.
func Paragraph(comparisons []Comparison, s Setting) string {
	var sentences []string
	pairs, other := 0, 0.0
	for _, c := range comparisons {
		if c.Pairs == 0 {
			sentences = append(sentences, fmt.Sprintf("For %s no round is good on both sides, so nothing can be said.", c.Target))
			continue
		}
		pairs, other = max(pairs, c.Pairs), max(other, c.MostOtherCPU)
		sentences = append(sentences, middleSentence(c))
		if c.Pairs >= leastPairs {
			sentences = append(sentences, tailSentence(c))
		}
		if c.ProxyCPUMicros != nil {
			sentences = append(sentences, cpuSentence(c, s.Rates[c.Target]))
		}
	}
	if other > noticedCPU {
		sentences = append(sentences, fmt.Sprintf(
			"Programs outside of the demonstration used up to %.0f %% of the machine meanwhile, which blurs everything above.", other*100))
	}
	if pairs > 0 {
		sentences = append(sentences, fmt.Sprintf(
			"All of this rests on at most %s of %.0f s a side on %s that the load generator, the services and the proxies share: it is %s.",
			plural(pairs, "round"), s.BlockTime, plural(s.Cores, "core"), Mark))
	}
	return strings.Join(sentences, " ")
}

// noticedCPU is the share of the machine from which other programs are worth a word.
const noticedCPU = 0.05

// middleSentence is about the median request, which a few slow ones cannot move.
func middleSentence(c Comparison) string {
	sentence := fmt.Sprintf("The median request to %s took %s ms without the mesh and %s ms with it",
		c.Target, milliseconds(c.None.P50), milliseconds(c.Mesh.P50))
	change := amount(c.None.P50, c.Difference("P50"))
	switch {
	case c.Pairs < leastPairs:
		sentence += ", in a single good round, which cannot tell an effect from chance"
	case c.Verdicts["P50"] == Faster:
		sentence += fmt.Sprintf(": %s less, and every round with the mesh was faster than every round without", change)
	case c.Verdicts["P50"] == Slower:
		sentence += fmt.Sprintf(": encryption, identity and policy added %s, in every round", change)
	default:
		sentence += fmt.Sprintf("; the rounds of the two sides overlap, so this run does not tell them apart (%s)", change)
	}
	return sentence + "."
}

// tailSentence is about the average and P99, which slow requests rule and which may go another way than the median.
func tailSentence(c Comparison) string {
	average, p99 := c.Verdicts["avg"], c.Verdicts["P99"]
	if average == p99 {
		return fmt.Sprintf("%s at P99 (%s against %s ms).", capital(outcome("on average and", average)), milliseconds(c.None.P99), milliseconds(c.Mesh.P99))
	}
	return fmt.Sprintf("%s (%s against %s ms); %s (%s against %s ms).",
		capital(outcome("on average", average)), milliseconds(c.None.Avg), milliseconds(c.Mesh.Avg),
		outcome("at P99", p99), milliseconds(c.None.P99), milliseconds(c.Mesh.P99))
}

func outcome(where string, v Verdict) string {
	switch v {
	case Faster:
		return "the mesh was faster " + where
	case Slower:
		return "the mesh was slower " + where
	}
	return "there is no verdict " + where
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
