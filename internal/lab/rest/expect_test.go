package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The form's own defaults have no P99, and its user learns that before ten seconds are measured.
func TestAFormSaysWhichPercentilesARunWillLack(t *testing.T) {
	web, _ := start(t, nil)
	for query, want := range map[string]string{
		"qps=100&t=10s":         "About 1,000 answers are expected: P99 needs 100 s at this rate.",
		"qps=100&t=100s":        "",
		"qps=1&t=10s":           "About 10 answers are expected: P50 needs 200 s at this rate, P90 needs 17 min at this rate, P99 needs 2.8 h at this rate.",
		"n=1000":                "About 1,000 answers are expected: P99 needs 10,000 answers.",
		"n=10000":               "",
		"qps=-1&t=10s":          "P99 needs 10,000 answers.",
		"qps=100&t=on":          "",
		"qps=33.3&t=5m&url=x:y": "About 9,990 answers are expected: P99 needs 301 s at this rate.",
	} {
		code, text := ask(t, "GET", web.URL+"/api/expect?"+query, "")
		if says := decode[map[string]string](t, text)["says"]; code != http.StatusOK || says != want {
			t.Errorf("%s: %d %q, want %q", query, code, says, want)
		}
	}
	// What the page sends by itself is what its fields hold.
	page, err := os.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	query := url.Values{}
	for _, field := range []string{"qps", "t"} {
		found := regexp.MustCompile(`name="` + field + `"[^>]* value="([^"]*)"|name="` + field + `" value="([^"]*)"`).FindSubmatch(page)
		if found == nil {
			t.Fatalf("the form has no %s", field)
		}
		query.Set(field, string(found[1])+string(found[2]))
	}
	if _, text := ask(t, "GET", web.URL+"/api/expect?"+query.Encode(), ""); !strings.Contains(text, "P99 needs 100 s at this rate") {
		t.Errorf("the form's defaults: %s", text)
	}
	if code, text := ask(t, "GET", web.URL+"/api/expect?qps=fast", ""); code != http.StatusBadRequest || decode[formReply](t, text).Key != "qps" {
		t.Errorf("%d %s", code, text)
	}
}

// A refusal names the field of the form, whose label the page puts before the reason.
func TestAFormsRefusalNamesItsField(t *testing.T) {
	web, _ := start(t, nil)
	page, err := os.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ key, value, advice string }{
		{"qps", "fast", `"fast" is not a number`},
		{"c", "four", `"four" is not a whole number`},
		{"t", "soon", `"soon" is not a time: write for example 10s or 1m30s`},
		{"warmup", "1", `"1" is not a time: write for example 10s or 1m30s`},
		{"timeout", "x", `"x" is not a time: write for example 10s or 1m30s`},
		{"url", "http://[", `"http://[" is not a URL: write for example http://127.0.0.1:8080/`},
		{"connection-reuse", "a:b", `"a:b": write MIN:MAX, two numbers of requests per connection`},
	} {
		keys := map[string]string{"url": "http://127.0.0.1:1/", tt.key: tt.value}
		body, err := json.Marshal(keys)
		if err != nil {
			t.Fatal(err)
		}
		code, text := ask(t, "POST", web.URL+"/api/runs", string(body), "Content-Type: application/json")
		if got := decode[formReply](t, text); code != http.StatusBadRequest || got.Key != tt.key || got.Advice != tt.advice {
			t.Errorf("%s=%s: %d %s", tt.key, tt.value, code, text)
		}
		if !strings.Contains(string(page), `name="`+tt.key+`"`) {
			t.Errorf("the form has no field %s, whose label would be said", tt.key)
		}
	}
}

// The generator tells every percentile of each second, of seven answers as of seven thousand.
func TestALivePercentileHasItsSamples(t *testing.T) {
	one := func(v float64) *float64 { return &v }
	for answers, want := range map[uint64]string{0: "", 7: "max", 200: "p50 max", 1000: "p50 p90 max", 10000: "p50 p90 p99 max"} {
		p := Progress{Answers: answers, P50: one(1), P90: one(2), P99: one(3), Max: one(4)}.printable()
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, name := range []string{"p50", "p90", "p99", "max"} {
			if strings.Contains(string(text), `"`+name+`_ms"`) {
				has = append(has, name)
			}
		}
		if got := strings.Join(has, " "); got != want {
			t.Errorf("%d answers: %q, want %q", answers, got, want)
		}
	}
	web, _ := start(t, nil)
	ask(t, "GET", web.URL+"/fortio/rest/run?url=http://127.0.0.1:4/&qps=7&t=10m&async=on", "")
	var text string
	eventually(t, "progress", func() bool {
		_, text = ask(t, "GET", web.URL+"/api/active", "")
		return strings.Contains(text, `"answers_total":7`)
	})
	if strings.Contains(text, "p99_ms") || strings.Contains(text, "p50_ms") || !strings.Contains(text, `"max_ms":2`) {
		t.Errorf("of seven answers: %s", text)
	}
}

// A refused connection takes microseconds, which is no response time.
func TestARunOfFailuresAloneHasNoTimes(t *testing.T) {
	web, _ := start(t, nil)
	for _, target := range []string{"http://127.0.0.1:1/", "http://127.0.0.1:4/?status=503"} {
		_, text := ask(t, "GET", web.URL+"/fortio/rest/run?save=on&n=300&qps=-1&url="+url.QueryEscape(target), "")
		if !strings.Contains(text, "DurationHistogram") {
			t.Fatalf("%s: %s", target, text)
		}
	}
	_, text := ask(t, "GET", web.URL+"/api/runs", "")
	list := decode[struct{ Runs []Summary }](t, text).Runs
	if len(list) != 2 {
		t.Fatalf("got %s", text)
	}
	for _, r := range list {
		if r.Failed != 300 || len(r.Times) > 0 || len(r.Thin) > 0 {
			t.Errorf("%s has times: %+v", r.URL, r)
		}
		if _, text := ask(t, "GET", web.URL+"/api/runs/"+r.ID, ""); len(decode[stored](t, text).Series) > 0 {
			t.Errorf("%s has distributions", r.URL)
		}
	}
}
