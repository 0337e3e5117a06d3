// Package spelling guesses which of the words that there are a mistyped one was meant to be. What to say then is its callers'.
package spelling

import "strings"

// Nearest picks the candidate that a typing mistake most likely meant, or "" if none is close: a third of the word may be wrong. Of
// two that are as near it is the one that is as long as the word.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", max(1, len(word)/3)
	for _, c := range candidates {
		if strings.EqualFold(c, word) {
			return c
		}
		d := distance(strings.ToLower(word), strings.ToLower(c))
		if d < bestDistance || d == bestDistance && (best == "" || len(best) != len(word) && len(c) == len(word)) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two words.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return len(a) + len(b)
	}
	var older, old []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		older, old, row = old, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, old[j]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
