package podspec

import (
	"slices"
	"strings"
	"testing"
	"testing/quick"

	corev1 "k8s.io/api/core/v1"
)

func TestExpandFollowsKubernetes(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for in, want := range map[string]string{
		"":                "",
		"plain":           "plain",
		"$(A)":            "1",
		"x$(A)y$(A)z":     "x1y1z",
		"$(EMPTY)|":       "|",
		"$(UNKNOWN)":      "$(UNKNOWN)",
		"$$(A)":           "$(A)",
		"$$$(A)":          "$1",
		"$$":              "$",
		"$":               "$",
		"a$":              "a$",
		"$A":              "$A",
		"$(A":             "$(A",
		"$()":             "$()",
		"$(B)":            "$(A)", // values are not expanded again
		"$(UNKNOWN)-$(A)": "$(UNKNOWN)-1",
	} {
		if got := Expand(in, vars); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestExpandLeavesTextWithoutDollarAlone(t *testing.T) {
	same := func(s string) bool {
		s = strings.ReplaceAll(s, "$", "")
		return Expand(s, map[string]string{s: "x"}) == s
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

func fieldRef(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestCommandOfSeesBaseThenOwnVariables(t *testing.T) {
	c := &corev1.Container{Name: "c", Command: []string{"$(HOME)/run"}, Args: []string{"--ip=$(IP)", "$(LATER)"}, WorkingDir: "/srv",
		Env: []corev1.EnvVar{
			{Name: "FIRST", Value: "$(HOME)/$(SECOND)"},
			{Name: "SECOND", Value: "2"},
			{Name: "HOME", Value: "/own"},
			{Name: "IP", ValueFrom: fieldRef("status.podIP")},
			{Name: "APP", ValueFrom: fieldRef("metadata.labels['app']")},
			{Name: "NODE", ValueFrom: fieldRef("spec.nodeName")},
			{Name: "ALL", ValueFrom: fieldRef("metadata.labels")},
		}}
	got, err := CommandOf(c, Facts{PodIP: "10.0.0.1", NodeName: "n1", Labels: map[string]string{"app": "web", "b": "2"}, Base: []string{"PATH=/bin", "HOME=/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/own/run", "--ip=10.0.0.1", "$(LATER)"}; !slices.Equal(got.Args, want) {
		t.Errorf("args %q, want %q", got.Args, want)
	}
	want := []string{"PATH=/bin", "HOME=/own", "FIRST=/tmp/$(SECOND)", "SECOND=2", "IP=10.0.0.1", "APP=web", "NODE=n1", "ALL=app=\"web\"\nb=\"2\""}
	if !slices.Equal(got.Env, want) {
		t.Errorf("env\n%q, want\n%q", got.Env, want)
	}
	if got.Dir != "/srv" {
		t.Errorf("dir %q", got.Dir)
	}
}

func TestCommandOfSaysWhatItCannotDo(t *testing.T) {
	for name, tc := range map[string]struct {
		c    corev1.Container
		want string
	}{
		"no command":    {corev1.Container{Name: "web"}, `container "web" has no command`},
		"args alone":    {corev1.Container{Name: "web", Args: []string{"x"}}, "has no command"},
		"a secret":      {corev1.Container{Command: []string{"x"}, Env: []corev1.EnvVar{{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}}, "env S: only fieldRef"},
		"unknown field": {corev1.Container{Command: []string{"x"}, Env: []corev1.EnvVar{{Name: "S", ValueFrom: fieldRef("spec.teapot")}}}, `unknown field "spec.teapot"`},
	} {
		if _, err := CommandOf(&tc.c, Facts{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestIneffectiveNamesFieldsOnce(t *testing.T) {
	spec := &corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}},
		Containers: []corev1.Container{
			{LivenessProbe: &corev1.Probe{}, VolumeMounts: []corev1.VolumeMount{{MountPath: "/tmp"}}},
			{LivenessProbe: &corev1.Probe{}},
		},
	}
	got := Ineffective(spec)
	if len(got) != 2 || !strings.HasPrefix(got[0], "volumes") || got[1] != "livenessProbe" {
		t.Errorf("got %q", got)
	}
	if got := Ineffective(&corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"x"}, ReadinessProbe: &corev1.Probe{}}}}); len(got) != 0 {
		t.Errorf("a plain spec has ineffective fields %q", got)
	}
}

func TestGraceSeconds(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, tc := range []struct {
		in   *int64
		want int64
	}{{nil, 30}, {n(0), 0}, {n(5), 5}, {n(-1), 0}, {n(1 << 40), 3600}} {
		if got := GraceSeconds(&corev1.PodSpec{TerminationGracePeriodSeconds: tc.in}); got != tc.want {
			t.Errorf("got %d, want %d", got, tc.want)
		}
	}
}
