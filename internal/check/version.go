package check

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is a dotted version, most significant part first: 1.26.8 is Version{1, 26, 8}.
type Version []int

// versionPattern finds the first number that starts a word and follows no letter or digit, with its dotted rest:
// "go1.26.8" and "v20.1" count, the 86 of "x86_64" does not.
var versionPattern = regexp.MustCompile(`(?:^|[^0-9A-Za-z_.])(?:go|v)?([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})`)

// FindVersion returns the first version that a tool's output names. A dotted number is preferred to a lone one, since
// tools print years and revisions too.
func FindVersion(output string) (Version, bool) {
	var lone Version
	for _, m := range versionPattern.FindAllStringSubmatch(output, -1) {
		v := parseVersion(m[1])
		if len(v) > 1 {
			return v, true
		}
		if lone == nil {
			lone = v
		}
	}
	return lone, lone != nil
}

func parseVersion(s string) Version {
	var v Version
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil // versionPattern admits digits only
		}
		v = append(v, n)
	}
	return v
}

// Less compares part by part; a missing part counts as zero.
func (v Version) Less(w Version) bool {
	for i := range max(len(v), len(w)) {
		if a, b := v.part(i), w.part(i); a != b {
			return a < b
		}
	}
	return false
}

func (v Version) part(i int) int {
	if i < len(v) {
		return v[i]
	}
	return 0
}

func (v Version) String() string {
	parts := slices.Collect(func(yield func(string) bool) {
		for _, n := range v {
			if !yield(strconv.Itoa(n)) {
				return
			}
		}
	})
	return strings.Join(parts, ".")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
