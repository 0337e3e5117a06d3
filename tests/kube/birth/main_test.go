package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A machine that is slow in some rounds is slow for all births of these: what the mesh adds is seen all the same.
func TestRoundsAreComparedWithThemselves(t *testing.T) {
	rounds := map[string]map[string]float64{}
	for i, base := range []float64{500, 3000, 510, 900, 520, 7000, 505} {
		rounds[string(rune('a'+i))] = map[string]float64{without: base, inMesh: base + 30 + float64(i), outside: base + 1}
	}
	rounds["half"] = map[string]float64{inMesh: 9000}
	median, low, high := compared(rounds, inMesh)
	if median != 33 || low < 30 || high > 36 {
		t.Errorf("%v, %v to %v", median, low, high)
	}
	if median, _, _ := compared(rounds, outside); median != 1 {
		t.Errorf("outside: %v", median)
	}
}

func TestTheMedianLiesBetween(t *testing.T) {
	for want, values := range map[float64][]float64{1: {1}, 1.5: {1, 2}, 2: {1, 2, 9}} {
		if got := quantile(values, 0.5); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %v", values, got)
		}
	}
}

func TestTheReportIsOfAllKinds(t *testing.T) {
	for name, x := range map[string]struct {
		mesh float64
		ok   bool
	}{"kept": {540, true}, "broken": {560, false}} {
		file := filepath.Join(t.TempDir(), name)
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []sample{{Kind: without, Round: "1", MS: 500}, {Kind: outside, Round: "1", MS: 501}, {Kind: inMesh, Round: "1", MS: x.mesh}} {
			if err := json.NewEncoder(f).Encode(s); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		if err := judge(file); (err == nil) != x.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if judge(empty) == nil {
		t.Error("a file without births makes a report")
	}
}
