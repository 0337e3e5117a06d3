package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// evil is text that would be more than text if it were let through anywhere.
const evil = "x\"'><script>alert(1)</script>\n# head | cell `code` [link](javascript:x) *b* <img src=x onerror=y> </svg></style>\x1b[31m\u202e\x00&amp;"

// hostile is the sample with evil in every string that a document holds.
func hostile(t testing.TB) *results.Results {
	t.Helper()
	return withEvil(sample(t))
}

// hostileWaypoints is the same of a run that compares waypoints, one of which could not take part.
func hostileWaypoints() *results.Results {
	r := waypointRun(3)
	r.Planes = append(r.Planes, results.Plane{Name: "cilium", Kind: results.KindCilium})
	withEvil(r)
	for i := range r.Planes {
		r.Planes[i].Settings = map[string]string{results.SettingListeners: evil, "configuration": evil, "without": evil}
	}
	r.Remarks = []string{evil}
	return r
}

// withEvil puts evil into every string of a document.
func withEvil(r *results.Results) *results.Results {
	rename := map[string]string{}
	for i := range r.Planes {
		p := &r.Planes[i]
		if p.Name != "none" {
			rename[p.Name] = p.Name + evil
			p.Name += evil
		}
		p.Version, p.Path, p.SHA256, p.Settings = p.Version+evil, evil, evil, map[string]string{evil: evil}
		if p.Kind == results.KindCilium {
			p.NotRun = evil
		}
	}
	of := func(name string) string {
		if to, ok := rename[name]; ok {
			return to
		}
		return name
	}
	r.Name, r.Command = evil, []string{"lateen", evil}
	r.Machine = results.Machine{Kernel: evil, CPU: evil, Lateen: evil, CongestionControl: evil, Accounting: evil, Cores: 2}
	for i := range r.Scenarios {
		o := &r.Scenarios[i]
		o.Scenario, o.Title, o.Failed = o.Scenario+evil, evil, evil
		o.Answers, o.NotValid, o.Notes = append(o.Answers, evil), []string{evil}, []string{evil}
		o.Facts = append(o.Facts, results.Fact{Plane: evil, Name: evil, Unit: evil, Note: evil, Value: 1})
		for j := range o.Cells {
			c := &o.Cells[j]
			c.Name += evil
			for k, v := range c.Params {
				delete(c.Params, k)
				c.Params[k+evil] = v
			}
			c.Load.URL, c.Load.Command, c.Load.Arrivals = evil, evil, evil
			for k := range c.Blocks {
				b := &c.Blocks[k]
				b.Plane = of(b.Plane)
				b.Metrics[evil], b.Metrics["syscalls_per_request."+evil+".all"] = 1, 2
				b.Errors = map[string]uint64{evil: 3}
				if k%5 == 0 {
					b.Rejected = []string{evil}
				}
			}
			for k := range c.Verdicts {
				v := &c.Verdicts[k]
				v.Plane, v.Baseline, v.Why = of(v.Plane), of(v.Baseline), evil
				if k == 1 {
					v.Judgement, v.Metric = evil, evil
				}
			}
		}
	}
	return r
}

func TestThePageEscapesEverything(t *testing.T) {
	var out bytes.Buffer
	if err := HTML(&out, hostile(t)); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, no := range []string{"<script", "<img", "\x1b", "\x00", "\u202e", "&amp;amp;amp;"} {
		if strings.Contains(text, no) {
			t.Errorf("the page contains %q", no)
		}
	}
	if n := strings.Count(text, "</style>"); n != 1 {
		t.Errorf("%d ends of the style", n)
	}
	// Every tag is one of ours, and drawings are well-formed.
	known := regexp.MustCompile(`^/?(!doctype|html|head|meta|title|style|body|a|header|h1|h2|h3|h4|p|strong|pre|code|nav|ul|li|main|section|details|summary|div|table|caption|thead|tbody|tr|th|td|span|figure|figcaption|svg|text|line|rect|polyline|polygon|circle|g)$`)
	for _, m := range regexp.MustCompile(`<([^\s<>]*)`).FindAllStringSubmatch(text, -1) {
		if !known.MatchString(strings.TrimSuffix(m[1], "/")) {
			t.Fatalf("a tag of somebody else: %q", m[0])
		}
	}
	if bare := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(text, `""`); regexp.MustCompile(`<[^<>]*\son[a-z]+=`).MatchString(bare) {
		t.Error("an attribute that runs code")
	}
	drawings := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(text, -1)
	if len(drawings) < 8 {
		t.Fatalf("%d drawings", len(drawings))
	}
	for _, d := range drawings {
		for decoder := xml.NewDecoder(strings.NewReader(d)); ; {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("a drawing is not well-formed: %v\n%s", err, d)
			}
		}
	}
}

func TestMarkdownEscapesEverything(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"report":  func(w io.Writer) error { return Markdown(w, hostile(t)) },
		"explain": func(w io.Writer) error { return Explain(w, hostile(t)) },
		"compare": func(w io.Writer) error { return Compare(w, hostile(t), hostile(t)) },
		// Its own words have code as well. Those of others end no code.
		"waypoints": func(w io.Writer) error {
			var page bytes.Buffer
			err := WaypointPage(&page, hostileWaypoints())
			_, _ = w.Write(regexp.MustCompile("`(waypoint|waypoint-grpc|waypoint-conn|lateen|none|(waypoint|envoy-waypoint|envoy-one-listener)x\"[^`]*)`").ReplaceAll(page.Bytes(), []byte("a name")))
			return err
		},
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		columns := 0
		for _, line := range strings.Split(out.String(), "\n") {
			if strings.ContainsAny(line, "\x1b\x00\u202e\r") {
				t.Fatalf("%s: control characters in %q", name, line)
			}
			if strings.HasPrefix(line, "    ") {
				continue // an indented block shows everything as it is
			}
			if strings.HasPrefix(line, "# head") {
				t.Fatalf("%s: a heading of somebody else: %s", name, line)
			}
			bare := strings.ReplaceAll(line, `\\`, "")
			for _, no := range []string{"<script", "<img"} {
				if strings.Contains(bare, no) {
					t.Fatalf("%s: %s in %s", name, no, line)
				}
			}
			if regexp.MustCompile("(^|[^\\\\])[`\\[]").MatchString(bare) {
				t.Fatalf("%s: code or a link in %s", name, line)
			}
			bars := strings.Count(strings.ReplaceAll(bare, `\|`, ""), "|")
			switch {
			case !strings.HasPrefix(line, "|"):
				columns = 0
			case columns == 0:
				columns = bars
			case bars != columns:
				t.Fatalf("%s: %d bars in a table with %d: %s", name, bars, columns, line)
			}
		}
	}
}

// A document that is nearly empty, or lacks what others have, still makes a report.
func TestReportsOfLittle(t *testing.T) {
	half := sample(t)
	half.Interrupted = true
	for i := range half.Scenarios {
		half.Scenarios[i].Failed = "the target died"
		for j := range half.Scenarios[i].Cells {
			c := &half.Scenarios[i].Cells[j]
			c.Blocks, c.Verdicts = c.Blocks[:j], nil
		}
	}
	for name, r := range map[string]*results.Results{
		"nothing":      {Format: results.Format},
		"no blocks":    {Format: results.Format, Planes: []results.Plane{{Name: "none", Kind: "none"}}, Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{{Name: "c"}}}}},
		"all rejected": {Format: results.Format, Planes: []results.Plane{{Name: "none", Kind: "none"}}, Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{{Name: "c", Blocks: []results.Block{{Plane: "none", Rejected: []string{"steal"}}}}}}}},
		"half":         half,
	} {
		for form, write := range map[string]func(io.Writer, *results.Results) error{"Markdown": Markdown, "HTML": HTML, "Explain": Explain} {
			var out bytes.Buffer
			if err := write(&out, r); err != nil {
				t.Errorf("%s, %s: %v", name, form, err)
			}
			if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "%!") {
				t.Errorf("%s, %s: a number that is none:\n%s", name, form, out.String())
			}
			if name == "half" && form != "Explain" && (!strings.Contains(out.String(), "was interrupted") || !strings.Contains(out.String(), "the target died")) {
				t.Errorf("%s does not say that the run was cut short", form)
			}
		}
		if err := Compare(io.Discard, r, half); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
