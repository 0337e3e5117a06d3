package rest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestPercentilesAreThoseThatAreListedOrFortiosByBuckets(t *testing.T) {
	h := histogram{Count: 4, Min: 1, Max: 9, Avg: 4, Data: []bucket{{1, 2, 50, 2}, {2, 4, 75, 1}, {8, 9, 100, 1}}, Percentiles: []percentile{{90, 7}}}
	for p, want := range map[float64]float64{10: 1, 25: 1, 50: 2, 62.5: 3, 75: 4, 87.5: 8.5, 90: 7, 100: 9} {
		if got := h.at(p); math.Abs(got-want) > 1e-9 {
			t.Errorf("P%g is %g, want %g", p, got, want)
		}
	}
	for v, want := range map[float64]float64{0: 0, 1: 0, 1.5: .25, 2: .5, 3: .625, 6: .75, 8.5: .875, 9: 1, 99: 1} {
		if got := h.below(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("below %g lie %g, want %g", v, got, want)
		}
	}
}

// The values are those of Fortio's own results of the same runs.
func TestResultsOfOtherProtocolsAreFortios(t *testing.T) {
	web, _ := start(t, nil)
	for query, want := range map[string]string{
		"url=127.0.0.1:4&runner=grpc&ping=on": `{"RunType":"GRPC Ping","RetCodes":{"SERVING":6},"Destination":"127.0.0.1:4","Streams":1,"Ping":true,"Metadata":null}`,
		"url=127.0.0.1:4&runner=grpc":         `{"RunType":"GRPC Health for ''","RetCodes":{"SERVING":6},"Destination":"127.0.0.1:4","Streams":1,"Ping":false,"Metadata":null}`,
		"url=tcp://127.0.0.1:4":               `{"RunType":"TCP","RetCodes":{"OK":6},"Destination":"tcp://127.0.0.1:4","BytesSent":144,"ReqTimeout":3000000000}`,
		"url=tcp://127.0.0.1:4&payload=four":  `{"RunType":"TCP","BytesSent":24,"Payload":"Zm91cg=="}`,
	} {
		_, text := ask(t, "GET", web.URL+"/fortio/rest/run?n=6&c=2&qps=-1&"+query, "")
		got := decode[map[string]any](t, text)
		for key, value := range decode[map[string]any](t, want) {
			if _, there := got[key]; !there || !reflect.DeepEqual(got[key], value) {
				t.Errorf("%s: %s is %v, want %v", query, key, got[key], value)
			}
		}
	}
}

// A result of Fortio's own, from its directory, is listed and drawn like ours.
func TestResultsOfFortioAreRead(t *testing.T) {
	web, _ := start(t, func(o *Options) {
		text, err := os.ReadFile("testdata/fortio/result.json")
		if err == nil {
			err = os.WriteFile(filepath.Join(o.Results, "2026-11-21-080507_14_long.json"), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	_, text := ask(t, "GET", web.URL+"/api/runs/2026-11-21-080507_14_long", "")
	one := decode[stored](t, text)
	if s := one.Summary; s.Labels != "long" || s.Ours || s.Count < 10 || s.Times["avg"] <= 0 || s.Times["avg"] > s.Times["max"] || s.Connections != 2 || s.Wanted != "50" {
		t.Errorf("%.500s", text)
	}
	if len(one.Series) != 1 || one.Series[0].Name != "duration" || len(one.Series[0].Curve) < 100 || !strings.Contains(strings.Join(one.Warnings, " "), "another program") {
		t.Errorf("%.500s", text)
	}
}

// FuzzReadDocument: whatever lies in the directory is refused, or makes numbers that JSON can say.
func FuzzReadDocument(f *testing.F) {
	if text, err := os.ReadFile("testdata/fortio/result.json"); err == nil {
		f.Add(text)
	}
	f.Add([]byte(`{"DurationHistogram": {"Count": 2, "Min": 1, "Max": 2, "Avg": 1.5, "Data": [{"Start": 1, "End": 2, "Percent": 100, "Count": 2}], "Percentiles": [{"Percentile": 50, "Value": 1}]}}`))
	f.Add([]byte(`{"RunType": "TCP", "Destination": "tcp://a:1", "DurationHistogram": {"Count": 0, "Data": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := readDocument(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "not a result in Fortio's format: ") {
				t.Fatal(err)
			}
			return
		}
		s := seriesOf("x", d.DurationHistogram)
		if _, err := json.Marshal([]any{d.summary("x"), s}); err != nil {
			t.Fatal(err)
		}
		for _, at := range s.Curve {
			if at[1] < 0 || at[1] > 1e13 {
				t.Fatalf("a time of %g ms", at[1])
			}
		}
	})
}
