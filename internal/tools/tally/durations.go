package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// durations is how long each step of a tier took when it last ran here. It serves the reader of a long run alone: a file that
// is missing, unreadable or cannot be written changes nothing else.
type durations struct {
	path  string
	Steps map[string]time.Duration `json:"steps"`
}

// readDurations reads what the last run of a tier left in the user's cache.
func readDurations(tierFile string) *durations {
	d := &durations{Steps: map[string]time.Duration{}}
	cache, err := os.UserCacheDir()
	if err != nil {
		return d
	}
	d.path = filepath.Join(cache, "lateen", "tiers", filepath.Base(tierFile)+".json")
	data, err := os.ReadFile(d.path)
	if err != nil || json.Unmarshal(data, d) != nil || d.Steps == nil {
		d.Steps = map[string]time.Duration{}
	}
	return d
}

func (d *durations) took(s step, took time.Duration) {
	if d != nil {
		d.Steps[s.name] = took
	}
}

func (d *durations) write() {
	data, err := json.Marshal(d)
	if err != nil || d.path == "" || os.MkdirAll(filepath.Dir(d.path), 0o755) != nil {
		return
	}
	_ = os.WriteFile(d.path, data, 0o644)
}

// of says how long a step took last, or nothing.
func (d *durations) of(s step) string {
	if d == nil || d.Steps[s.name] == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f s the last time", d.Steps[s.name].Seconds())
}

// place says where in its tier a step is: which of how many, how long it took the last time, and what is left after it.
func (d *durations) place(steps []step, at int) string {
	number, total := 0, 0
	var left []string
	for i, s := range steps {
		if s.wait {
			continue
		}
		total++
		if i <= at {
			number++
		} else {
			left = append(left, s.name)
		}
	}
	parts := []string{fmt.Sprintf("%d of %d", number, total)}
	if last := d.of(steps[at]); last != "" {
		parts = append(parts, last)
	}
	if len(left) > 0 {
		parts = append(parts, "left: "+strings.Join(left, ", "))
	}
	return "(" + strings.Join(parts, "; ") + ")"
}
