package results_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func sample() *results.Results {
	return &results.Results{
		Format: results.Format, Name: "twopods-qps", Command: []string{"lateen", "lab", "run", "twopods-qps"},
		Planes: []results.Plane{{Name: "none", Kind: results.KindNone}, {Name: "lateen", Kind: results.KindLateen}},
		Scenarios: []results.Outcome{{Scenario: "twopods-qps", Cells: []results.Cell{{
			Name:   "500 requests/s",
			Blocks: []results.Block{{Plane: "none", Round: 1, Metrics: map[string]float64{results.ResponseP50: 0.1}}},
		}}}},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	want := sample()
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{path, filepath.Dir(path)} {
		got, err := results.Read(from)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", from, got, want)
		}
	}
}

func TestDocumentsThatCannotBeUsedAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*results.Results){
		"use the program that wrote it": func(r *results.Results) { r.Format = "lateen-lab/0" },
		"stands twice":                  func(r *results.Results) { r.Planes[1].Name = "none" },
		"cell \"\" is empty":            func(r *results.Results) { r.Scenarios[0].Cells[0].Name = "" },
		"unknown plane \"x\"":           func(r *results.Results) { r.Scenarios[0].Cells[0].Blocks[0].Plane = "x" },
	} {
		r := sample()
		spoil(r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := results.Decode(bytes.NewReader(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := results.Decode(strings.NewReader("{")); err == nil || !strings.Contains(err.Error(), "not a results.json") {
		t.Errorf("half a document: got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	text, _ := json.Marshal(sample())
	f.Add(text)
	f.Add([]byte(`{"format":"lateen-lab/1","scenarios":[{"cells":[{"name":" "}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := results.Decode(bytes.NewReader(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if _, err := results.Decode(bytes.NewReader(again)); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
