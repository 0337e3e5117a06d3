package isotope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxSize bounds a body in bytes: a service holds what it answers in memory.
const maxSize = 1 << 30

var sizeText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtTpP]?)([iI]?)[bB]?$`)

// size reads a number of bytes: 1024, "10k", "16 KB", "1.5MiB". All units are powers of 1024, as isotope has them.
func size(raw json.RawMessage) (int64, error) {
	text, quoted, err := scalar(raw)
	if err != nil {
		return 0, err
	}
	m := sizeText.FindStringSubmatch(text)
	if m == nil || (m[2] == "" && m[3] != "") || !quoted && strings.ContainsAny(text, ".") {
		return 0, fmt.Errorf("%s is no size: write a number of bytes, such as 1024 or 16 KB", shown(raw))
	}
	number, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%s is no size: write a number of bytes, such as 1024 or 16 KB", shown(raw))
	}
	unit := strings.Index(" kmgtp", strings.ToLower(m[2]))
	if m[2] == "" {
		unit = 0
	}
	bytes := number * math.Pow(1024, float64(unit))
	if bytes > maxSize {
		return 0, fmt.Errorf("%s is more than 1 GiB, and a service holds its answer in memory: use less", shown(raw))
	}
	return int64(bytes), nil
}

// sizeString writes bytes with isotope's units.
func sizeString(n int64) string {
	value, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB"}
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return strconv.FormatFloat(value, 'g', 4, 64) + units[unit]
}

// percentage reads a share: a number between 0 and 1, or "0.1%" between 0 % and 100 %.
func percentage(raw json.RawMessage) (float64, error) {
	bad := func() (float64, error) {
		return 0, fmt.Errorf(`%s is no share: write a number from 0 to 1, or one from "0%%" to "100%%"`, shown(raw))
	}
	text, quoted, err := scalar(raw)
	if err != nil {
		return bad()
	}
	number, percent := strings.CutSuffix(text, "%")
	if percent != quoted {
		return bad()
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return bad()
	}
	if percent {
		f /= 100
	}
	if !(f >= 0 && f <= 1) {
		return bad()
	}
	return f, nil
}

func percentString(f float64) string { return strconv.FormatFloat(100*f, 'f', 2, 64) + "%" }

// maxSleep bounds one pause.
const maxSleep = time.Hour

func duration(raw json.RawMessage) (time.Duration, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if d, err := time.ParseDuration(text); err == nil && d >= 0 && d <= maxSleep {
			return d, nil
		}
	}
	return 0, fmt.Errorf("%s is no pause: write a time from 0s to 1h with its unit, such as 10ms", shown(raw))
}

// whole reads an integer within bounds.
func whole(raw json.RawMessage, least, most int) (int, error) {
	var n int
	if json.Unmarshal(raw, &n) != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: use a whole number from %d to %d", shown(raw), least, most)
	}
	return n, nil
}

// scalar is a string's content, or a number as it is written.
func scalar(raw json.RawMessage) (text string, quoted bool, err error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", false, fmt.Errorf("there is no value")
	}
	if raw[0] == '"' {
		err = json.Unmarshal(raw, &text)
		return text, true, err
	}
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return "", false, fmt.Errorf("%s is neither a number nor a string", shown(raw))
	}
	var number json.Number
	err = json.Unmarshal(raw, &number)
	return number.String(), false, err
}

// shown is a value for an error, at most 60 bytes of it.
func shown(raw json.RawMessage) string {
	const longest = 60
	if len(raw) > longest {
		return strings.ToValidUTF8(string(raw[:longest]), "") + "…"
	}
	return string(raw)
}
