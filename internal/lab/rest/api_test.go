package rest

import (
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/lab/results"
)

// ran starts a run by the own interface and waits until it is stored.
func ran(t *testing.T, base, body string) string {
	t.Helper()
	code, text := ask(t, "POST", base+"/api/runs", body, "Content-Type: application/json")
	if code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	id := decode[struct{ ID string }](t, text).ID
	eventually(t, "the run is stored", func() bool {
		code, _ := ask(t, "GET", base+"/api/runs/"+id, "")
		return code == http.StatusOK
	})
	return id
}

func TestARunIsStoredShownComparedAndDeleted(t *testing.T) {
	web, _ := start(t, nil)
	first := ran(t, web.URL, `{"url": "http://127.0.0.1:4/", "n": 20000, "qps": -1, "labels": "first"}`)
	second := ran(t, web.URL, `{"url": "http://127.0.0.1:4/?scale=2", "n": 20000, "qps": -1, "labels": "second"}`)
	_, text := ask(t, "GET", web.URL+"/api/runs", "")
	list := decode[struct{ Runs []Summary }](t, text)
	if len(list.Runs) != 2 || list.Runs[0].ID != second || list.Runs[1].Labels != "first" || !list.Runs[0].Ours {
		t.Fatalf("the list: %s", text)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > .01*want {
			t.Errorf("%s is %g, want about %g", what, got, want)
		}
	}
	near("P50", list.Runs[1].Times["p50"], fakeQuantile(.5))
	near("P99", list.Runs[1].Times["p99"], fakeQuantile(.99))
	near("P90 of the slower", list.Runs[0].Times["p90"], 2*fakeQuantile(.9))
	if thin := strings.Join(list.Runs[0].Thin, " "); thin != "p99.9" {
		t.Errorf("of 20000 answers too few lie beyond %q", thin)
	}

	_, text = ask(t, "GET", web.URL+"/api/runs/"+first, "")
	one := decode[stored](t, text)
	if len(one.Series) != 2 || one.Series[0].Name != "response time" || one.Series[0].Count != 20000 {
		t.Fatalf("the series: %.300s", text)
	}
	curve := one.Series[0].Curve
	end := curve[len(curve)-1]
	near("the curve's end", end[0], math.Log10(200))
	near("the time there", end[1], fakeQuantile(1-1.0/200))
	share := 0.0
	for _, bar := range one.Series[0].Bars {
		share += bar.Share
	}
	near("the bars' sum", share, .99)

	_, text = ask(t, "GET", web.URL+"/api/compare?id="+first+"&id="+second, "")
	rows := decode[struct{ Runs []compared }](t, text).Runs
	if len(rows) != 2 || rows[0].Ratios["p50"] != 1 {
		t.Fatalf("the comparison: %.300s", text)
	}
	near("the ratio", rows[1].Ratios["p99"], 2)

	if code, text := ask(t, "GET", web.URL+"/api/runs/"+first+"/report", ""); code != http.StatusOK || !strings.Contains(text, "lateen-load/1") {
		t.Errorf("the report: %d %.100s", code, text)
	}
	if code, text := ask(t, "DELETE", web.URL+"/api/runs/"+first, ""); code != http.StatusNoContent {
		t.Errorf("delete: %d %s", code, text)
	}
	for _, path := range []string{"/api/runs/" + first, "/api/runs/" + first + "/report", "/fortio/data/" + first + ".json", "/api/compare?id=" + first + "&id=" + second} {
		if code, _ := ask(t, "GET", web.URL+path, ""); code != http.StatusNotFound {
			t.Errorf("deleted, %s: %d", path, code)
		}
	}
}

// A percentile beyond which lie fewer than 100 answers is chance: it is neither told nor compared. Fortio's own form keeps it.
func TestAPercentileThatRestsOnFewAnswersIsNotTold(t *testing.T) {
	web, _ := start(t, nil)
	many := ran(t, web.URL, `{"url": "http://127.0.0.1:4/", "n": 20000, "qps": -1}`)
	few := ran(t, web.URL, `{"url": "http://127.0.0.1:4/", "n": 5000, "qps": -1}`)
	told := func(times map[string]float64) string { return strings.Join(slices.Sorted(maps.Keys(times)), " ") }

	_, text := ask(t, "GET", web.URL+"/api/runs", "")
	list := decode[struct{ Runs []Summary }](t, text).Runs
	if len(list) != 2 || list[0].ID != few {
		t.Fatalf("the list: %s", text)
	}
	if got, thin := told(list[0].Times), strings.Join(list[0].Thin, " "); got != "avg max min p50 p75 p90" || thin != "p99 p99.9" {
		t.Errorf("of 5000 answers it tells %s and leaves out %s", got, thin)
	}
	if got := told(list[1].Times); got != "avg max min p50 p75 p90 p99" {
		t.Errorf("of 20000 answers it tells %s", got)
	}
	_, text = ask(t, "GET", web.URL+"/api/runs/"+few, "")
	for _, s := range decode[stored](t, text).Series {
		if got := told(s.Times); got != "avg max min p50 p75 p90" {
			t.Errorf("of 5000 answers' %s it tells %s", s.Name, got)
		}
	}
	for _, pair := range [][2]string{{many, few}, {few, many}} {
		_, text = ask(t, "GET", web.URL+"/api/compare?id="+pair[0]+"&id="+pair[1], "")
		rows := decode[struct{ Runs []compared }](t, text).Runs
		if len(rows) != 2 {
			t.Fatalf("the comparison: %.300s", text)
		}
		if got := told(rows[1].Ratios); got != "avg max min p50 p75 p90" {
			t.Errorf("it compares %s", got)
		}
	}
	_, text = ask(t, "GET", web.URL+"/fortio/data/"+few+".json", "")
	if d := decode[document](t, text); !slices.ContainsFunc(d.DurationHistogram.Percentiles, func(p percentile) bool { return p.Percentile == 99 && p.Value > 0 }) {
		t.Errorf("Fortio's form has lost its P99: %.300s", text)
	}
}

func TestNamesLeadNowhereElse(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.json")
	if err := os.WriteFile(secret, []byte(`{"DurationHistogram": {"Count": 1}, "Labels": "secret"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var dir string
	web, s := start(t, func(o *Options) {
		dir = o.Results
		o.Lab = filepath.Join(outside, "lab")
	})
	for _, link := range []string{filepath.Join(dir, "link.json"), filepath.Join(dir, "lateen", "link.json")} {
		if err := os.Symlink(secret, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(outside, "lab", "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(outside, "lab", "away")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"link", "..%2fsecret", "%2e%2e%2fsecret", "..", ".", "%00", "lateen%2flink", "..%5csecret", "secret%00", "-x", "a.b", strings.Repeat("a", 200), "%2fetc%2fpasswd",
	} {
		for _, path := range []string{"/api/runs/" + name, "/api/runs/" + name + "/report", "/fortio/data/" + name + ".json", "/api/lab/" + name, "/lab/" + name, "/api/lab/away", "/lab/away%2f..%2freal"} {
			code, text := ask(t, "GET", web.URL+path, "")
			page := strings.HasSuffix(path, "/..") || strings.HasSuffix(path, "/.") // the client asks for the folder
			if code == http.StatusOK && !page || strings.Contains(text, `"secret"`) {
				t.Errorf("%s: %d %.200s", path, code, text)
			}
		}
		if code, _ := ask(t, "DELETE", web.URL+"/api/runs/"+name, ""); code == http.StatusNoContent && name != "link" {
			t.Errorf("%s was deleted", name)
		}
		if err := s.store.Save("../"+name, []byte("{}"), nil); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}

func TestResultsThatCannotBeReadAreListedWithTheReason(t *testing.T) {
	var dir string
	web, _ := start(t, func(o *Options) { dir = o.Results })
	for name, text := range map[string]string{
		"broken": "{", "other": `{"a": 1}`, "empty": `{"RunType": "HTTP", "DurationHistogram": {"Count": 0, "Data": null}}`,
		"huge": `{"DurationHistogram": {"Count": 3, "Min": 1e308, "Avg": 1e308, "Max": 1e308, "Data": []}}`,
		"odd":  `{"DurationHistogram": {"Count": 3, "Min": 1, "Avg": 1, "Max": 1, "Data": [{"Start": 9, "End": 1, "Percent": -5, "Count": -1}, {"Start": 1, "End": 1, "Percent": 100, "Count": 3}]}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, text := ask(t, "GET", web.URL+"/api/runs", "")
	list := decode[struct {
		Runs   []Summary
		Unread []struct{ ID, Error string }
	}](t, text)
	if code != http.StatusOK || len(list.Runs) != 1 || len(list.Unread) != 4 || !strings.Contains(text, "it has no DurationHistogram") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(t, "GET", web.URL+"/api/runs/empty", ""); code != http.StatusOK || !json.Valid([]byte(text)) {
		t.Errorf("empty: %d %s", code, text)
	}
	for _, name := range []string{"broken", "other", "huge", "odd"} {
		if code, text := ask(t, "GET", web.URL+"/api/runs/"+name, ""); code != http.StatusInternalServerError || !decode[serverReply](t, text).Error {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
}

func TestRunsOfTheLabAreListedShownAndCompared(t *testing.T) {
	var dir string
	web, _ := start(t, func(o *Options) { dir = o.Lab })
	doc := results.Results{
		Format: results.Format, Name: "x", Started: time.Unix(1e9, 0), Ended: time.Unix(1e9+60, 0), Planes: []results.Plane{{Name: "none", Kind: "none"}},
		Scenarios: []results.Outcome{{Scenario: "aa-null", Title: "A <b>title</b>", Cells: []results.Cell{{Name: "c", Blocks: []results.Block{{Plane: "none", Round: 1}, {Plane: "none", Round: 2, Rejected: []string{"steal"}}}}}}},
	}
	for _, name := range []string{"one", "two-20261121"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := doc.Write(filepath.Join(dir, name, "results.json")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bad"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad", "results.json"), []byte(`{"format": "x"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, text := ask(t, "GET", web.URL+"/api/lab", "")
	list := decode[struct{ Runs []labRun }](t, text).Runs
	found := map[string]labRun{}
	for _, r := range list {
		found[r.Name] = r
	}
	if one := found["one"]; len(list) != 3 || one.Blocks != 2 || one.Rejected != 1 || one.Seconds != 60 || found["bad"].Error == "" {
		t.Errorf("the list: %s", text)
	}
	if code, text := ask(t, "GET", web.URL+"/api/lab/one", ""); code != http.StatusOK || decode[results.Results](t, text).Name != "x" {
		t.Errorf("the document: %d %s", code, text)
	}
	if code, text := ask(t, "GET", web.URL+"/lab/one", ""); code != http.StatusOK || !strings.HasPrefix(text, "<!doctype html>") || strings.Contains(text, "<b>title</b>") {
		t.Errorf("the page: %d %.300s", code, text)
	}
	if code, text := ask(t, "GET", web.URL+"/api/lab-compare?a=one&b=two-20261121", ""); code != http.StatusOK || len(text) < 50 {
		t.Errorf("the comparison: %d %s", code, text)
	}
	for _, path := range []string{"/api/lab/nowhere", "/lab/nowhere", "/api/lab-compare?a=one&b=nowhere"} {
		if code, _ := ask(t, "GET", web.URL+path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// The page asks for nothing beyond this server, runs no script but its own, and never makes markup of texts.
func TestThePageNeedsNothingElse(t *testing.T) {
	web, _ := start(t, nil)
	err := fs.WalkDir(pageFiles, "page", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := pageFiles.ReadFile(path)
		if err != nil {
			return err
		}
		known := strings.NewReplacer(`"http://www.w3.org/2000/svg"`, "", "http://127.0.0.1:8080/?size=1024", "").Replace(string(text))
		if m := regexp.MustCompile(`https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|@import| on[a-z]+=|style="`).FindString(known); m != "" {
			t.Errorf("%s has %q", path, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(web.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if policy := answer.Header.Get("Content-Security-Policy"); !strings.Contains(policy, part) {
			t.Errorf("the policy %q lacks %q", policy, part)
		}
	}
}
