package analyse

import (
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

// unclearDryRun tells of an annotation for dry runs that is neither true nor false. The policy's condition says so beside what proxies cannot judge
// of its rules. Afterwards the condition is about the rules alone, so that no finding names the annotation as the cause of another effect.
func (a *analysis) unclearDryRun(p *policy) {
	unclear := translate.UnclearDryRun(p.AuthorizationPolicy)
	if unclear == "" {
		return
	}
	a.add(p.key, Finding{Code: PartlyEnforced, Severity: Warning, State: Partial, Field: "metadata.annotations[" + wellknown.DryRun + "]", Message: unclear})
	without := p.DeepCopy()
	delete(without.Annotations, wellknown.DryRun)
	_, conditions := translate.Authorization(a.Mesh, without)
	p.condition = conditions[0]
}
