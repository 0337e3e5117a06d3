package files

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodThatNamesNoServiceAccountRunsAsDefault(t *testing.T) {
	for spec, want := range map[string]string{
		"metadata: {name: p, namespace: shop}\nspec: {containers: []}\n":                                                                       "default",
		"metadata: {name: p, namespace: shop}\nspec: {containers: [], serviceAccountName: \"\"}\n":                                             "default",
		"metadata: {name: p, namespace: shop}\nspec: {containers: [], serviceAccount: old}\n":                                                  "old",
		"metadata: {name: p, namespace: shop}\nspec: {containers: [], serviceAccount: old, serviceAccountName: web}\n":                         "web",
		"metadata: {name: p, namespace: shop, annotations: {kubernetes.io/config.mirror: x}}\nspec: {containers: []}\n":                        "",
		"metadata: {name: p, namespace: shop, annotations: {kubernetes.io/config.source: file}}\nspec: {containers: [], hostNetwork: false}\n": "default",
	} {
		objects, problems := Decode("f", []byte("apiVersion: v1\nkind: Pod\n"+spec))
		if len(problems) > 0 || len(objects) != 1 {
			t.Fatalf("%s: %v", spec, problems)
		}
		if got := objects[0].Value.(*corev1.Pod).Spec.ServiceAccountName; got != want {
			t.Errorf("%s: account %q, want %q", spec, got, want)
		}
	}
}
