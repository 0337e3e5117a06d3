package cluster

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/check"
)

func TestWhatSomebodyRemovedIsNamed(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*rig)
		outcome check.Outcome
		cause   string
		fix     string
	}{
		"nothing":             {func(*rig) {}, check.OK, "", ""},
		"an admission policy": {func(r *rig) { r.removed = []string{"ValidatingAdmissionPolicy lateen-selectors"} }, check.Failure, "validatingadmissionpolicy/lateen-selectors is missing", "lateen upgrade"},
		"a role":              {func(r *rig) { r.removed = []string{"ClusterRole lateen-agent"} }, check.Failure, "clusterrole/lateen-agent is missing", "lateen upgrade"},
		"a role of Helm's": {func(r *rig) { r.removed, r.record.Helm = []string{"ClusterRole lateen-agent"}, true }, check.Failure,
			"clusterrole/lateen-agent is missing", "helm upgrade lateen charts/lateen --namespace lateen-system --reset-then-reuse-values"},
		"a Service":                     {func(r *rig) { r.removed = []string{"Service lateen-control"} }, check.Warning, "lateen-system/service/lateen-control is missing", "lateen upgrade"},
		"another version":               {func(r *rig) { r.record.Version = "0.2.0" }, check.Warning, "not known: this program has 0.1.0", "0.2.0"},
		"half an installation":          {func(r *rig) { r.record.State = "installing" }, check.Warning, "not known", "LAT120"},
		"lost values":                   {func(r *rig) { r.record.Lost = true }, check.Warning, "not known", "LAT120"},
		"who may not be told":           {func(r *rig) { r.unpatched = true }, check.Warning, "not known: the API server refuses", "cluster administrator"},
		"what may not even be compared": {func(r *rig) { r.removed, r.unpatched, r.record.Helm = nil, true, true }, check.OK, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			x.change(r)
			got := result(t, r.run(t, Installed), "LAT131")
			if got.Outcome != x.outcome || !strings.Contains(got.Cause, x.cause) || !strings.Contains(got.Fix, x.fix) {
				t.Errorf("%+v", got)
			}
		})
	}
}
