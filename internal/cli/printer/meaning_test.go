package printer

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"lateen.dev/lateen/internal/meaning"
)

func meant(t *testing.T, r meaning.Report, width int) string {
	t.Helper()
	var out bytes.Buffer
	if err := Meaning(&out, r, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSamenessIsSaid(t *testing.T) {
	if text := meant(t, meaning.Report{}, 80); !strings.Contains(text, "Everything means the same here") {
		t.Error(text)
	}
	if text := meant(t, meaning.Report{Unread: []string{"pods: forbidden"}}, 80); strings.Contains(text, "Everything") || !strings.Contains(text, "- pods: forbidden") {
		t.Errorf("what was not compared passes for the same: %s", text)
	}
}

// Whatever rule gives it, a difference fits the page.
func TestDifferencesFitThePage(t *testing.T) {
	var r meaning.Report
	for _, rule := range meaning.Rules {
		for _, s := range rule.Severities {
			r.Differences = append(r.Differences, meaning.Difference{Rule: rule.ID, Severity: s, Object: meaning.Object{Kind: "AuthorizationPolicy", Namespace: "a-namespace-of-somebody", Name: "a-policy-with-a-name"}, Field: "spec.rules[0].from[0].source.notTrustDomains",
				Today: rule.Today, Then: rule.Then, Keep: rule.Keep, Objects: []string{"shop/a", "shop/b"}, More: 3})
		}
	}
	for _, width := range []int{80, 100} {
		for _, line := range strings.Split(meant(t, r, width), "\n") {
			if utf8.RuneCountInString(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}

func TestOfManyTheFirstAreWrittenOut(t *testing.T) {
	var r meaning.Report
	for i := range mostOfRule + 4 {
		r.Differences = append(r.Differences, meaning.Difference{Rule: "some-rule", Severity: meaning.AccessOpens, Object: meaning.Object{Kind: "Pod", Name: fmt.Sprint("p", i)}, Today: "a", Then: "b"})
	}
	text := meant(t, r, 80)
	if strings.Count(text, "Pod p") != mostOfRule || !strings.Contains(text, "and 4 more of rule some-rule: -o json has all") || !strings.Contains(text, "14  access opens") {
		t.Error(text)
	}
}

func TestWhatRefusesNamesItsFlag(t *testing.T) {
	d := meaning.Difference{Rule: "x", Severity: meaning.AccessOpens, Object: meaning.Object{Kind: "ConfigMap", Namespace: "istio-system", Name: "istio"}, Field: "meshConfig.y", Today: "a", Then: "b", Refuses: true}
	if text := meant(t, meaning.Report{Differences: []meaning.Difference{d}}, 100); !strings.Contains(text, "--accept-difference=meshConfig.y") {
		t.Error(text)
	}
}
