package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// lastApplied is an annotation with the whole manifest, as kubectl apply writes it.
const lastApplied = `"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"key\":\"hunter2\"}}"}`

func TestAnnotationsOfASecretAreHidden(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{object("secret", "x", `{"metadata":{"name":"x",`+lastApplied+`}}`)}
	for _, format := range []string{"table", "json", "yaml"} {
		r := f.run("", "describe", "secret", "x", "-o", format)
		if strings.Contains(r.stdout, "hunter2") || !strings.Contains(r.stdout, "last-applied-configuration") || !strings.Contains(r.stdout, "***") {
			t.Errorf("describe -o %s: %+v", format, r)
		}
	}
	key := api.Key{Kind: "Secret", Namespace: "default", Name: "x"}
	text, err := difference(api.ObjectResult{Key: key, Before: versionOf("Secret", lastApplied, `{}`), After: versionOf("Secret", strings.Replace(lastApplied, "hunter2", "hunter3", 1), `{}`)})
	if err != nil || strings.Contains(text, "hunter") || !strings.Contains(text, "-    kubectl.kubernetes.io/last-applied-configuration: '*** (before)'\n") {
		t.Errorf("diff: %v\n%s", err, text)
	}
}

func TestDescribeTellsTheSameStateAsGetAndTheFindings(t *testing.T) {
	f := describedMesh(t)
	finding := api.Finding{Code: "selects-nothing", Severity: api.FindingWarning, State: printer.StateIneffective, Field: "spec.selector", Message: "no pod has these labels", Fix: "correct the labels"}
	for i, o := range f.objects {
		switch o.Key.Name {
		case "everywhere":
			f.objects[i].Findings = []api.Finding{finding}
		case "hidden":
			f.objects[i].Ignored = "the mesh reads no Secrets"
		}
	}
	r := f.run("", "describe", "ap", "everywhere", "-n", "istio-system")
	for _, want := range []string{"State:            ineffective, see Findings\n", "Findings:\n  - warning: spec.selector: no pod has these labels\n    fix: correct the labels\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("lacks %q:\n%s", want, r.stdout)
		}
	}
	var d struct {
		State    string
		Findings []api.Finding
	}
	r = f.run("", "describe", "ap", "everywhere", "-n", "istio-system", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || d.State != printer.StateIneffective || len(d.Findings) != 1 || d.Findings[0].Fix != finding.Fix {
		t.Errorf("%v: %+v", err, r)
	}
	if r := f.run("", "describe", "pod", "web-a"); !strings.Contains(r.stdout, "ineffective") {
		t.Errorf("the list of a pod's policies: %s", r.stdout)
	}
	if r := f.run("", "describe", "secret", "hidden"); !strings.Contains(r.stdout, "State:            ignored: the mesh reads no Secrets\n") {
		t.Errorf("a Secret: %s", r.stdout)
	}
}

func TestDescribeListsThePodsOfADeploymentWithExpressions(t *testing.T) {
	f := describedMesh(t)
	f.objects = append(f.objects,
		object("deploy", "odd", `{"metadata":{"name":"odd","namespace":"default","uid":"d1"},"spec":{"selector":{"matchExpressions":[{"key":"app","operator":"In","values":["odd","even"]}]}}}`),
		object("pod", "odd-1", `{"metadata":{"name":"odd-1","namespace":"default","labels":{"app":"odd"}}}`))
	r := f.run("", "describe", "deploy", "odd")
	if !strings.Contains(r.stdout, "Selector:         app in (even,odd)\n") || !strings.Contains(r.stdout, "odd-1") || strings.Contains(r.stdout, "web-a") {
		t.Errorf("%+v", r)
	}
	// A pod with the labels that another object controls is not the Deployment's.
	f.objects = append(f.objects, object("pod", "odd-stranger", `{"metadata":{"name":"odd-stranger","namespace":"default","labels":{"app":"odd"},"ownerReferences":[{"kind":"StatefulSet","name":"s","uid":"s1","controller":true}]}}`))
	if r := f.run("", "describe", "deploy", "odd"); strings.Contains(r.stdout, "odd-stranger") || !strings.Contains(r.stdout, "odd-1") {
		t.Errorf("%+v", r)
	}
}
