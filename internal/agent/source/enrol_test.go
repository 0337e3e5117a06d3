package source

import (
	"testing"

	"lateen.dev/lateen/internal/model/wellknown"
)

func TestEnrolment(t *testing.T) {
	const unset = "(unset)"
	tests := []struct {
		namespace, pod string
		host, want     bool
	}{
		{unset, unset, false, false},
		{"ambient", unset, false, true},
		{"ambient", "none", false, false},
		{"ambient", "ambient", false, true},
		{"ambient", "", false, true},
		{"ambient", "sidecar", false, true},
		{unset, "ambient", false, true},
		{"none", "ambient", false, true},
		{"none", unset, false, false},
		{"Ambient", unset, false, false},
		{"ambient", unset, true, false},
		{"ambient", "ambient", true, false},
	}
	labels := func(value string) map[string]string {
		if value == unset {
			return nil
		}
		return map[string]string{wellknown.DataplaneMode: value}
	}
	for _, tt := range tests {
		p := Pod{Labels: labels(tt.pod), HostNetwork: tt.host}
		if got := Enrolled(p, Namespace{Labels: labels(tt.namespace)}); got != tt.want {
			t.Errorf("namespace %s, pod %s, host network %v: enrolled %v", tt.namespace, tt.pod, tt.host, got)
		}
	}
	for mirror, want := range map[bool]bool{false: true, true: false} {
		p := Pod{Labels: labels("ambient")}
		if mirror {
			p.Annotations = map[string]string{ConfigMirror: ""}
		}
		if got := Enrolled(p, Namespace{Labels: labels("ambient")}); got != want {
			t.Errorf("static pod %v: enrolled %v", mirror, got)
		}
	}
}

func TestANamespaceDecidesForPodsThatSayNothing(t *testing.T) {
	labelled := func(mode string) Pod { return Pod{Labels: map[string]string{wellknown.DataplaneMode: mode}} }
	for name, tt := range map[string]struct {
		pod  Pod
		want bool
	}{
		"no label": {Pod{}, true}, "a label that means nothing": {labelled("sidecar"), true},
		"in": {labelled("ambient"), false}, "out": {labelled("none"), false},
		"the node's network": {Pod{HostNetwork: true}, false},
		"static":             {Pod{Annotations: map[string]string{ConfigMirror: "x"}}, false},
	} {
		if got := DecidedByNamespace(tt.pod); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
