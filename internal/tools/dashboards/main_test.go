package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	const root = "../../.."
	files, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is out of date: run `make dashboards` and commit what it writes (%v)", name, err)
		}
	}
}

func TestPanelsFillRowsWithoutOverlap(t *testing.T) {
	wide := func(w int, k kind) panel { return panel{Width: w, Kind: k} }
	d := dashboard{Rows: []row{{"a", []panel{wide(12, stat), wide(12, lines), wide(8, stat)}}, {"b", []panel{wide(24, table)}}}}
	var got [][4]int
	for _, p := range d.panels() {
		g := p["gridPos"].(object)
		got = append(got, [4]int{g["x"].(int), g["y"].(int), g["w"].(int), g["h"].(int)})
	}
	want := [][4]int{{0, 0, 24, 1}, {0, 1, 12, 4}, {12, 1, 12, 8}, {0, 9, 8, 4}, {0, 13, 24, 1}, {0, 14, 24, 10}}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("placed %v, want %v", got, want)
		}
	}
}
