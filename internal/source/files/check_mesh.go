package files

import (
	"fmt"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/meshconfig"
)

// isMeshConfig says whether a ConfigMap may be that of the mesh's settings. Which namespace is the root is not known here.
func isMeshConfig(o metav1.Object) bool {
	config := o.(*corev1.ConfigMap)
	_, has := config.Data[meshconfig.DataKey]
	return config.Name == meshconfig.ObjectName && has
}

// checkConfigMap refuses settings of the mesh that cannot be read, so that those before stay in force.
func checkConfigMap(o metav1.Object) []fault {
	if !isMeshConfig(o) {
		return nil
	}
	if _, err := meshconfig.Parse(o.(*corev1.ConfigMap).Data[meshconfig.DataKey]); err != nil {
		return []fault{{field: "data." + meshconfig.DataKey, message: err.Error(), fix: "correct the MeshConfig"}}
	}
	return nil
}

// MeshConfig judges the ConfigMap of the mesh's settings as one from a file.
func MeshConfig(config *corev1.ConfigMap) (problems []Problem) {
	for _, f := range checkConfigMap(config) {
		problems = append(problems, Problem{Severity: f.severity, Object: "ConfigMap " + config.Namespace + "/" + config.Name, Field: f.field, Message: f.message, Fix: f.fix}.clipped())
	}
	return problems
}

// checkRequestAuthentication refuses what Istio's own validation refuses, as far as it bears on where tokens are looked for.
func checkRequestAuthentication(o metav1.Object) []fault {
	ra := o.(*securityv1.RequestAuthentication)
	spec := &ra.Spec
	faults := checkLabels("spec.selector.matchLabels", spec.GetSelector().GetMatchLabels())
	if spec.Selector != nil && (spec.TargetRef != nil || len(spec.TargetRefs) > 0) { //nolint:staticcheck // targetRef is still accepted
		faults = append(faults, fault{field: "spec.selector", message: "both a selector and a target are given", fix: "keep one of selector and targetRefs"})
	}
	for i, rule := range spec.GetJwtRules() {
		path := fmt.Sprintf("spec.jwtRules[%d]", i)
		if rule.GetIssuer() == "" {
			faults = append(faults, fault{field: path + ".issuer", message: "the issuer is missing", fix: "write the issuer of the tokens"})
		}
		for j, h := range rule.GetFromHeaders() {
			if strings.TrimSpace(h.GetName()) == "" {
				faults = append(faults, fault{field: fmt.Sprintf("%s.fromHeaders[%d].name", path, j), message: "the name is missing", fix: "name the field that has the token"})
			}
		}
	}
	return faults
}
