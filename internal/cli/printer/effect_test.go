package printer

import (
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

// A condition says in one message what several findings say apart.
func TestFindingsCoverAConditionTogether(t *testing.T) {
	findings := []api.Finding{{Message: "refuses ALL connections to 1 pod (web-1): node proxies cannot judge methods; rules are dropped. A waypoint is needed to enforce them"},
		{Message: `annotation istio.io/dry-run is "maybe", so the policy is enforced; use true or false`}}
	const rules, annotation = "node proxies cannot judge methods; rules are dropped. A waypoint is needed to enforce them", `annotation istio.io/dry-run is "maybe", so the policy is enforced; use true or false`
	for message, want := range map[string]bool{"": false, rules: true, annotation: true, rules + ". " + annotation: true, rules + ". Ports are not judged": false, "another thing": false} {
		if Covers(findings, message) != want {
			t.Errorf("%q: covered is %t", message, !want)
		}
	}
}
