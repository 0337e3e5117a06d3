package analyse

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/spelling"
)

// namespaceLabels judges the labels by which namespaces, and pods of them, ask to be in a mesh.
func (a *analysis) namespaceLabels() {
	for _, ns := range a.Namespaces {
		key := model.NamespaceKey(ns.Name)
		mode := ns.Labels[wellknown.DataplaneMode]
		if text := wellknown.UnknownMode(ns.Labels); text != "" {
			a.add(key, Finding{Code: UnknownMode, Severity: Warning, Field: "metadata.labels[" + wellknown.DataplaneMode + "]", Message: text, Fix: a.meantMode(mode)})
		}
		if ns.Labels[wellknown.Injection] == "enabled" && mode != ambient {
			a.add(key, Finding{Code: InjectionLabel, Severity: Warning, Field: "metadata.labels[" + wellknown.Injection + "]", Message: "label " + wellknown.Injection + "=enabled has no effect: this mesh injects no sidecars",
				Fix: "set " + wellknown.DataplaneMode + "=" + ambient + " in its place: the mesh then carries the pods' connections without a restart"})
		}
	}
	wrong := map[[2]string][]*corev1.Pod{}
	for _, p := range a.Pods {
		if wellknown.UnknownMode(p.Labels) != "" && !model.Ended(p) {
			at := [2]string{p.Namespace, p.Labels[wellknown.DataplaneMode]}
			wrong[at] = append(wrong[at], p)
		}
	}
	for at, list := range wrong {
		slices.SortFunc(list, func(x, y *corev1.Pod) int { return strings.Compare(x.Name, y.Name) })
		f := Finding{Code: UnknownMode, Severity: Warning, Fix: a.meantMode(at[1])}
		var named []*workload
		for _, p := range list {
			named = append(named, &workload{key: model.PodKey(p.Namespace, p.Name)})
		}
		f.Message = "label of " + a.podText(&f, named) + ": " + wellknown.UnknownMode(list[0].Labels)
		a.add(model.NamespaceKey(at[0]), f)
	}
}

func (a *analysis) meantMode(value string) string {
	if near := spelling.Nearest(value, []string{ambient, none}); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}
