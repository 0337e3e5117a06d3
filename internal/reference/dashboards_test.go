package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/agent"
	"lateen.dev/lateen/internal/control"
)

// known are the metrics that expressions may use, with the labels that they have.
type known map[string][]string

// scraped are the labels that Prometheus and the chart's monitors give to everything that is scraped.
var scraped = []string{"instance", "node"}

// declaredMetrics are those of all programs, those of Go and of the process, and what is recorded.
func declaredMetrics(t *testing.T) known {
	t.Helper()
	n, err := nodeProxy(root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := allMetrics(n)
	if err != nil {
		t.Fatal(err)
	}
	k := known{}
	for _, m := range all {
		k.add(m.Name, m.Kind, m.Labels)
	}
	_, agentRegistry := agent.Reference()
	for _, r := range []*prometheus.Registry{control.Reference(), agentRegistry} {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if runtimes(f.GetName()) {
				k.add(f.GetName(), strings.ToLower(f.GetType().String()), nil)
			}
		}
	}
	return k
}

func (k known) add(name, kind string, labels []string) {
	if kind != "histogram" {
		k[name] = labels
		return
	}
	k[name+"_bucket"], k[name+"_sum"], k[name+"_count"] = append(slices.Clone(labels), "le"), labels, labels
}

// check says what is wrong with an expression; it returns the labels that its result can have.
func (k known) check(expression string) error {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return err
	}
	var wrong []error
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		allowed := func(what string, names []string, under parser.Node) {
			for _, name := range names {
				if !slices.Contains(k.labels(under), name) {
					wrong = append(wrong, fmt.Errorf("%s has the label %s, which nothing below it has", what, name))
				}
			}
		}
		switch e := node.(type) {
		case *parser.VectorSelector:
			have, found := k[e.Name]
			if !found {
				wrong = append(wrong, fmt.Errorf("no program has the metric %q", e.Name))
				return nil
			}
			for _, m := range e.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(have, m.Name) && !slices.Contains(scraped, m.Name) {
					wrong = append(wrong, fmt.Errorf("%s has no label %s", e.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			if !e.Without {
				allowed(e.Op.String(), e.Grouping, e.Expr)
			}
		case *parser.BinaryExpr:
			if v := e.VectorMatching; v != nil && v.On {
				allowed(e.Op.String(), v.MatchingLabels, e.LHS)
				allowed(e.Op.String(), v.MatchingLabels, e.RHS)
			}
		}
		return nil
	})
	return errors.Join(wrong...)
}

// labels are those that the result of a part of an expression can have.
func (k known) labels(node parser.Node) []string {
	switch e := node.(type) {
	case *parser.VectorSelector:
		return append(slices.Clone(k[e.Name]), scraped...)
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
			return k.labels(e.Expr)
		}
		if e.Without {
			return slices.DeleteFunc(k.labels(e.Expr), func(l string) bool { return slices.Contains(e.Grouping, l) })
		}
		return e.Grouping
	}
	var all []string
	for child := range parser.ChildrenIter(node) {
		all = append(all, k.labels(child)...)
	}
	return all
}

// values are texts that labels of the metrics may be compared with: what the reference says of them.
func (k known) values(t *testing.T, expression string, page string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return // check has told
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if e, ok := node.(*parser.VectorSelector); ok {
			for _, m := range e.LabelMatchers {
				if m.Name == labels.MetricName || m.Value == ".*" {
					continue
				}
				for value := range strings.SplitSeq(m.Value, "|") {
					if !regexp.MustCompile("(`|[ (,\"])" + regexp.QuoteMeta(value) + "(`|[ ,)\"])").MatchString(page) {
						t.Errorf("%s: the reference knows no %s %q", expression, m.Name, value)
					}
				}
			}
		}
		return nil
	})
}

type expression struct{ where, text string }

// filled puts values in place of Grafana's variables.
func filled(text string, choices []string) string {
	r := []string{"$__rate_interval", "5m", "$__range", "1h"}
	for _, c := range choices {
		r = append(r, "$"+c, ".*")
	}
	return strings.NewReplacer(r...).Replace(text)
}

// page is what is looked at of a dashboard.
type page struct {
	UID        string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		Type, Title, Description string
		Datasource               struct{ UID string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct {
			Expr, LegendFormat string
			Datasource         struct{ UID string }
		}
	}
}

func dashboards(t *testing.T) map[string]page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "dashboards", "*.json"))
	if err != nil || len(names) < 4 {
		t.Fatalf("dashboards: %v (%v)", names, err)
	}
	all := map[string]page{}
	for _, name := range names {
		data, err := os.ReadFile(name)
		var p page
		if err == nil {
			err = json.Unmarshal(data, &p)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[filepath.Base(name)] = p
	}
	return all
}

// rules are those of dashboards/alerts.yaml.
type rules struct {
	Spec struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Record, Expr, For string
				Labels, Annotations      map[string]string
			}
		}
	}
}

func alertRules(t *testing.T) rules {
	t.Helper()
	var r rules
	if err := yaml.Unmarshal([]byte(text(t, "dashboards/alerts.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// A name that is spelled wrong makes an empty picture, and an alert that never fires.
func TestDashboardsAndAlertsUseWhatThereIs(t *testing.T) {
	k := declaredMetrics(t)
	reference := text(t, "docs/reference/metrics.md")
	var all []expression
	legend := func(where, text, expr string) {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		if err != nil {
			return
		}
		for _, m := range legendLabel.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(k.labels(parsed), m[1]) {
				t.Errorf("%s: the legend names %s, which %s has not", where, m[1], expr)
			}
		}
	}
	for name, p := range dashboards(t) {
		var choices []string
		for _, v := range p.Templating.List {
			if v.Type == "query" {
				choices = append(choices, v.Name)
				m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
				if m == nil || !slices.Contains(k.labels(&parser.VectorSelector{Name: m[1]}), m[2]) || k[m[1]] == nil && !slices.Contains(slices.Collect(maps.Keys(k)), m[1]) {
					t.Errorf("%s: the variable %s asks for %s", name, v.Name, v.Definition)
				}
			}
		}
		for _, panel := range p.Panels {
			for _, target := range panel.Targets {
				e := expression{name + ", " + panel.Title, filled(target.Expr, choices)}
				all = append(all, e)
				legend(e.where, target.LegendFormat, e.text)
			}
		}
	}
	recorded := map[string]bool{}
	for _, g := range alertRules(t).Spec.Groups {
		for _, r := range g.Rules {
			all = append(all, expression{"alerts.yaml, " + r.Alert + r.Record, r.Expr})
			if r.Record != "" {
				parsed, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
				if err != nil {
					t.Fatal(err)
				}
				k[r.Record], recorded[r.Record] = k.labels(parsed), true
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("%d expressions only", len(all))
	}
	for _, e := range all {
		if err := k.check(e.text); err != nil {
			t.Errorf("%s: %v\n%s", e.where, err, e.text)
		}
		k.values(t, e.text, reference)
	}
}

// The rule above must see what it is for.
func TestWrongExpressionsAreSeen(t *testing.T) {
	k := known{"a_total": {"x"}, "b": nil, "h_bucket": {"le"}}
	for expr, says := range map[string]string{
		`rate(a_totl[5m])`:                        `no program has the metric "a_totl"`,
		`rate(a_total{y="1"}[5m])`:                "a_total has no label y",
		`sum by (y) (rate(a_total[5m]))`:          "sum has the label y",
		`sum by (x) (sum by (node) (a_total))`:    "sum has the label x",
		`a_total and on (x) b`:                    "and has the label x",
		`sum(a_total`:                             "unclosed left parenthesis",
		`histogram_quantile(0.9, rate(h[5m]))`:    `no program has the metric "h"`,
		`topk(3, sum by (x, z) (a_total))`:        "sum has the label z",
		`sum by (node) (a_total) / on (x) sum(b)`: "/ has the label x",
	} {
		if err := k.check(expr); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", expr, err, says)
		}
	}
	for _, expr := range []string{`sum by (x, node) (rate(a_total{x="1",instance=~".*"}[5m]))`, `a_total and on (instance) b`, `topk(3, a_total)`,
		`histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))`, `absent(b == 1)`, `sum without (node) (a_total)`} {
		if err := k.check(expr); err != nil {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

func TestPanelsSayWhatTheyShow(t *testing.T) {
	for name, p := range dashboards(t) {
		if p.UID != "lateen-"+strings.TrimSuffix(name, ".json") {
			t.Errorf("%s has the uid %s", name, p.UID)
		}
		if len(p.Templating.List) == 0 || p.Templating.List[0].Type != "datasource" {
			t.Errorf("%s: the data source cannot be chosen", name)
		}
		type cell struct{ x, y int }
		taken := map[cell]string{}
		for _, panel := range p.Panels {
			for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
				for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
					if other := taken[cell{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %s lies on %q or beyond the edge", name, panel.Title, other)
					}
					taken[cell{x, y}] = panel.Title
				}
			}
			if panel.Type == "row" {
				continue
			}
			where := name + ", " + panel.Title
			if panel.FieldConfig.Defaults.Unit == "" || panel.Title == "" || len(panel.Targets) == 0 {
				t.Errorf("%s has no unit, title or expression", where)
			}
			if len(panel.Description) < 40 || !strings.Contains(panel.Description, "Normal: ") {
				t.Errorf("%s: the description says not what is normal: %s", where, panel.Description)
			}
			if panel.Datasource.UID != "${datasource}" {
				t.Errorf("%s reads from %s", where, panel.Datasource.UID)
			}
			for _, target := range panel.Targets {
				if target.Datasource.UID != "${datasource}" {
					t.Errorf("%s reads from %s", where, target.Datasource.UID)
				}
			}
		}
	}
}

func TestAlertsNameTheirFix(t *testing.T) {
	guide := text(t, "docs/guide/alerts.md")
	sections := map[string]string{}
	for _, s := range strings.Split(guide, "\n## ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		sections[title] = body
	}
	alerts := map[string]bool{}
	for _, g := range alertRules(t).Spec.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			alerts[r.Alert] = true
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
				t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s has no summary or description", r.Alert)
			}
			if want := "docs/guide/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s leads to %s, not %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			body := sections[r.Alert]
			for _, part := range []string{"**Meaning**", "**Cause**", "**Fix**", "```"} {
				if !strings.Contains(body, part) {
					t.Errorf("docs/guide/alerts.md: the section %s has no %s", r.Alert, part)
				}
			}
		}
	}
	for title := range sections {
		if strings.HasPrefix(title, "Lateen") && !alerts[title] {
			t.Errorf("docs/guide/alerts.md: there is no alert %s", title)
		}
	}
	if len(alerts) < 20 {
		t.Errorf("%d alerts only", len(alerts))
	}
}

// What the dashboards that Istio brings ask its L4 proxy for: those of the mesh, of services, of workloads and of ztunnel, and what the
// one of performance asks of a process.
var istioDashboards = []string{
	"istio_build", "istio_tcp_connections_opened_total", "istio_tcp_connections_closed_total", "istio_tcp_received_bytes_total", "istio_tcp_sent_bytes_total",
	"istio_tcp_sockets_open", "istio_dns_requests_total", "istio_xds_connection_terminations_total", "istio_xds_message_total", "workload_manager_active_proxy_count",
	"process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes",
}

// A pod that the proxy cannot take is refused to the agent, which counts it: the proxy has no list of those that it will try again.
var notServed = map[string]string{"workload_manager_pending_proxy_count": "lateen_agent_pods"}

func TestIstiosDashboardsFindTheirMetrics(t *testing.T) {
	n, err := nodeProxy(root)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, m := range n.Metrics {
		have[m.Name] = m.Labels
	}
	for _, name := range istioDashboards {
		if _, ok := have[name]; !ok {
			t.Errorf("the node proxy has no %s", name)
		}
	}
	for _, label := range []string{"reporter", "source_workload", "source_workload_namespace", "destination_workload", "destination_workload_namespace",
		"destination_service", "destination_service_name", "destination_service_namespace", "source_principal", "destination_principal", "connection_security_policy", "response_flags"} {
		if !slices.Contains(have["istio_tcp_sent_bytes_total"], label) {
			t.Errorf("istio_tcp_sent_bytes_total has no label %s", label)
		}
	}
	k := declaredMetrics(t)
	for name, instead := range notServed {
		if _, ok := have[name]; ok {
			t.Errorf("%s is served: move it to those that are", name)
		}
		if _, ok := k[instead]; !ok {
			t.Errorf("nothing has %s, which is to be looked at instead of %s", instead, name)
		}
	}
}
