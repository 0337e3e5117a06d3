package report

import (
	"os"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// got is an outcome with one request at the upstream.
func got(target string, change func(*upstream.Record)) Outcome {
	r := upstream.Record{Protocol: "HTTP/1.1", Method: "GET", Target: target, Host: cases.Host, Fields: map[string][]string{upstream.CaseField: {"1"}, "x-a": {"b"}}}
	if change != nil {
		change(&r)
	}
	return Outcome{Answer: client.Answer{Statuses: []int{200}, Closed: true}, Records: []upstream.Record{r}}
}

func said(statuses ...int) Outcome {
	return Outcome{Answer: client.Answer{Statuses: statuses, Closed: true}}
}

func TestDifferencesAreNamed(t *testing.T) {
	c := cases.Case{Number: 1, Names: []string{"x-a"}, Requests: 1}
	closing := got("/a", nil)
	closing.Records = append(closing.Records, upstream.Record{Method: "GET", Target: cases.ClosingPath})
	two := got("/a", nil)
	two.Records = append(two.Records, two.Records[0])
	for name, test := range map[string]struct {
		ours, peer Outcome
		want       string
	}{
		"the same":           {got("/a", nil), got("/a", nil), ""},
		"a whole URI":        {got("/a", nil), got("http://"+cases.Host+"/a", nil), ""},
		"the closing one":    {got("/a", nil), closing, ""},
		"two refusals":       {said(400), said(503), ""},
		"a refusal, a close": {said(400), said(), ""},
		"lenient":            {said(400), got("/a", nil), forwards},
		"strict":             {got("/a", nil), said(400), refuses},
		"answers":            {got("/a", nil), said(301), answers},
		"waits":              {got("/a", nil), Outcome{}, waits},
		"another path":       {got("/a", nil), got("/b", nil), "other path"},
		"another field":      {got("/a", nil), got("/a", func(r *upstream.Record) { r.Fields["x-a"] = nil }), "other fields"},
		"a proxy's field":    {got("/a", nil), got("/a", func(r *upstream.Record) { r.Fields["via"] = []string{"x"} }), ""},
		"other content":      {got("/a", nil), got("/a", func(r *upstream.Record) { r.Content = "x" }), "other content"},
		"two parts":          {got("/a", nil), got("/b", func(r *upstream.Record) { r.Host = "x" }), "other host; other path"},
		"more requests":      {got("/a", nil), two, "another number of requests"},
		"invalid":            {got("/a", nil), got("/a", func(r *upstream.Record) { r.Fault = "x" }), spoils},
		"trailers":           {got("/a", nil), got("/a", func(r *upstream.Record) { r.Fields["trailer x"] = []string{"y"} }), "other trailers"},
	} {
		if d := strings.Join(differences(c, test.ours, test.peer), "; "); d != test.want {
			t.Errorf("%s: %q, want %q", name, d, test.want)
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	c := cases.Case{Number: 1, Requests: 1, Want: []int{200}}
	two := got("/a", nil)
	two.Records = append(two.Records, two.Records[0])
	for name, test := range map[string]struct {
		outcome Outcome
		want    string
	}{
		"none":               {got("/a", nil), ""},
		"another status":     {said(400), "the answer is 400"},
		"no status":          {said(), "the end of the connection"},
		"two of one":         {two, "2 requests of 1"},
		"smuggled":           {got(cases.HiddenPath, nil), "stood where content is"},
		"denied":             {got("/admin/x", nil), "denied path"},
		"denied with query":  {got("/admin?x", nil), "denied path"},
		"not normal":         {got("/a/../b", nil), `policies see as "/b"`},
		"early":              {got("/a", func(r *upstream.Record) { r.Early = true }), "had not answered"},
		"invalid":            {got("/a", func(r *upstream.Record) { r.Fault = "a fault" }), "a fault"},
		"a claim":            {got("/a", func(r *upstream.Record) { r.Fields["x-envoy-internal"] = []string{"true"} }), "x-envoy-internal"},
		"a claim, disguised": {got("/a", func(r *upstream.Record) { r.Fields["x_forwarded_client_cert"] = []string{"URI=a"} }), "x_forwarded_client_cert"},
		"of no case":         {got("/a", func(r *upstream.Record) { r.Fields = nil }), "of no case"},
		"of another case":    {got("/a", func(r *upstream.Record) { r.Fields[upstream.CaseField] = []string{"2"} }), `of case "2"`},
	} {
		v := strings.Join(slices.Concat(Escapes(c, test.outcome), Unexpected(c, test.outcome)), "; ")
		if test.want == "" && v != "" || !strings.Contains(v, test.want) {
			t.Errorf("%s: %q, want %q", name, v, test.want)
		}
	}
}

func TestARequestThatMustBeRefusedIsNotForwarded(t *testing.T) {
	for _, want := range [][]int{{400}, {400, 0, -1}, {431}} {
		c := cases.Case{Number: 1, Requests: 1, Want: want}
		if v := Escapes(c, got("/a", nil)); len(v) != 1 || !strings.Contains(v[0], "must be refused") {
			t.Errorf("%v: %q", want, v)
		}
		if v := Escapes(c, got("/a", func(r *upstream.Record) { r.Partial = true })); len(v) != 0 {
			t.Errorf("%v: a part of it: %q", want, v)
		}
	}
	for _, want := range [][]int{nil, {200}, {101}, {200, 0, -1}} {
		if v := Escapes(cases.Case{Number: 1, Requests: 1, Want: want}, got("/a", nil)); len(v) != 0 {
			t.Errorf("%v: %q", want, v)
		}
	}
}

func TestLateRequestsAreJudgedByTheirContent(t *testing.T) {
	list := []cases.Case{{Number: 1, Want: []int{200}}, {Number: 2, Want: []int{400}}}
	of := func(number, target string) upstream.Record {
		return got(target, func(r *upstream.Record) { r.Fields[upstream.CaseField] = []string{number} }).Records[0]
	}
	part := of("2", "/a")
	part.Partial = true
	closing := upstream.Record{Method: "GET", Target: cases.ClosingPath}
	for name, test := range map[string]struct {
		record upstream.Record
		want   string
	}{
		"whole":              {of("1", "/a"), ""},
		"a part":             {part, ""},
		"the closing one":    {closing, ""},
		"must be refused":    {of("2", "/a"), "must be refused"},
		"denied":             {of("1", cases.DeniedPath), "denied path"},
		"smuggled":           {upstream.Record{Method: "GET", Target: cases.HiddenPath}, "stood where content is"},
		"invalid":            {upstream.Record{Fault: "a fault"}, "a fault"},
		"of a case unknown":  {of("7", "/a"), `case "7"`},
		"of no case at all":  {upstream.Record{Method: "GET", Target: "/a"}, "of no case"},
		"two, one of a case": {of("1", "/second"), ""},
	} {
		v := strings.Join(Late(list, []upstream.Record{test.record}), "; ")
		if test.want == "" && v != "" || !strings.Contains(v, test.want) {
			t.Errorf("%s: %q, want %q", name, v, test.want)
		}
	}
}

func TestPathsAreNormalisedAsPoliciesSeeThem(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b": "/a/b", "/a/./b": "/a/b", "/a/../b": "/b", "/../../b": "/b", "/a/..": "/", "/a/b/..": "/a/", "/a/.": "/a/",
		"/%61%2e%2e": "/a..", "/x/%2e%2E/a": "/a", `/a\..\b`: "/b", "/x/..;y/a": "/a", "/a;x/b": "/a;x/b", "/a%2fb": "/a%2Fb", "//a": "//a", "/": "/",
		"/a<b|": "/a%3Cb%7C", "/%3c": "/%3C", "/[a]": "/[a]",
	} {
		if got := normalise(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestAPageHoldsWhatWasObserved(t *testing.T) {
	observed := Table{}
	observed.Note("valid", "nginx", "forwards", []string{"refuses"})
	observed.Note("valid", "nginx", "forwards", []string{"other path"})
	observed.Note("PRI", "envoy", "refuses (400)", []string{"forwards"})
	page := TableOf([]Row{{Rule: "valid", Peers: map[string]Words{"haproxy": {"waits"}}, Here: Words{"forwards"}, Why: "a reason"}, {Rule: "PRI", Peers: map[string]Words{"nginx": {"waits"}}, Why: "x"}})
	rows := Update(page, observed, []string{"nginx", "envoy"}, []string{"valid", "PRI"})
	again, err := Parse(Render(rows))
	if err != nil || Render(again) != Render(rows) {
		t.Fatalf("%v\n%s", err, Render(rows))
	}
	first := again[0]
	if first.Why != "a reason" || !slices.Equal(first.Peers["nginx"], Words{"other path", "refuses"}) || !slices.Equal(first.Peers["haproxy"], Words{"waits"}) {
		t.Errorf("%+v", first)
	}
	if list := Unreasoned(again); len(list) != 0 {
		t.Errorf("%q", list)
	}
	if list := Unlisted(TableOf(again), observed); len(list) != 0 {
		t.Errorf("%q", list)
	}
	if list := Gone(TableOf(again), observed, []string{"nginx", "envoy"}); len(list) != 0 {
		t.Errorf("%q", list)
	}
	if list := Gone(TableOf(again), Table{}, []string{"envoy"}); !slices.Equal(list, []string{"PRI: Envoy: forwards"}) {
		t.Errorf("%q", list)
	}
	if list := GoneRules(TableOf(again), Table{}, []string{"envoy"}); !slices.Equal(list, []string{"PRI"}) {
		t.Errorf("%q", list)
	}
	merged := Table{}
	merged.Merge(observed)
	if list := Unlisted(merged, observed); len(list) != 0 {
		t.Errorf("%q", list)
	}
	if list := Unlisted(Table{}, observed); len(list) != 3 {
		t.Errorf("%q", list)
	}
}

func TestTheReferencePageIsWellFormed(t *testing.T) {
	const name = "../../../docs/reference/hostile-http.md"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if Render(rows) != string(text) {
		t.Errorf("%s is not what its rows make: run hostilehttp -write", name)
	}
	for _, r := range rows {
		if !slices.Contains(cases.Rules(), r.Rule) {
			t.Errorf("%s: no rule has the name %q", name, r.Rule)
		}
	}
	if list := Unreasoned(rows); len(list) != 0 {
		t.Errorf("%s: say why in the rows of %q", name, list)
	}
}
