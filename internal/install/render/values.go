package render

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// UserValues are what files and settings (KEY=VALUE, as Helm's --set has them) come to, later ones over earlier ones.
func UserValues(files, settings []string) (map[string]any, error) {
	values := map[string]any{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		var from map[string]any
		if err := yaml.Unmarshal(b, &from); err != nil {
			return nil, fmt.Errorf("read values of %s: %w; a file of values is YAML with the keys of charts/lateen/values.yaml", file, err)
		}
		values = loader.MergeMaps(values, from)
	}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return nil, fmt.Errorf("read --set %s: %w; write it as KEY=VALUE, such as control.replicas=3", setting, err)
		}
	}
	return values, nil
}

// Merge lays one tree of values over another and returns the result; neither is changed.
func Merge(under, over map[string]any) map[string]any { return loader.MergeMaps(under, over) }

// ValueError is values that a chart's schema refuses.
type ValueError struct {
	Chart   string
	Reasons []string
}

// Error implements error.
func (e *ValueError) Error() string {
	return fmt.Sprintf("the values for chart %s are refused: %s; charts/%s/values.yaml lists all values with what they mean", e.Chart, strings.Join(e.Reasons, "; "), e.Chart)
}

// The schema library's errors are a headline and lines such as "- at '/control': additional properties 'replica' not allowed".
var schemaLine = regexp.MustCompile(`^\s*- at '([^']*)': (.*)$`)

// refusal says in a user's words what a schema refuses.
func refusal(chart string, err error) error {
	e := &ValueError{Chart: chart}
	for _, line := range strings.Split(err.Error(), "\n") {
		m := schemaLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		where, what := strings.ReplaceAll(strings.TrimPrefix(m[1], "/"), "/", "."), m[2]
		if rest, ok := strings.CutPrefix(what, "additional properties "); ok {
			what = "there is no value " + strings.TrimSuffix(rest, " not allowed")
		}
		switch {
		case where == "":
		case strings.HasPrefix(what, "there is"):
			what += " in " + where
		default:
			what = where + " " + strings.Replace(what, "does not match pattern", "is not of the form", 1)
		}
		e.Reasons = append(e.Reasons, what)
	}
	if len(e.Reasons) == 0 {
		return fmt.Errorf("check the values of chart %s: %w", chart, err)
	}
	return e
}

// failed is what a template's own refusal looks like in the engine's error.
var failed = regexp.MustCompile(`(?s)^execution error at \(\S+\): (.*)$`)

// templateError keeps what a template says for people, and drops where in the chart it says so.
func templateError(chart string, err error) error {
	if m := failed.FindStringSubmatch(err.Error()); m != nil {
		return &ValueError{Chart: chart, Reasons: []string{strings.TrimSpace(m[1])}}
	}
	return fmt.Errorf("render chart %s: %w", chart, err)
}

// IsValueError says whether the user's values are what is wrong.
func IsValueError(err error) bool {
	var e *ValueError
	return errors.As(err, &e)
}
