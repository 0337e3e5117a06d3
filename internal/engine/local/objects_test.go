package local

import (
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
)

// oneNode is what takes users' objects in a mesh of one node, with the namespace default and its account.
func oneNode(t *testing.T) *userObjects {
	t.Helper()
	one := &node{name: "n1", labels: map[string]string{"lateen.dev/node-index": "1"}}
	u := newUserObjects(newState(nodeList{one}, newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, time.Now, newUID)), nil)
	res, _ := u.apply(api.ApplyRequest{Documents: []api.Document{{File: "ns.yaml", Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")}}})
	if len(res.Problems) > 0 {
		t.Fatalf("%+v", res.Problems)
	}
	return u
}

func (u *userObjects) applyText(text string) api.ApplyResult {
	res, _ := u.apply(api.ApplyRequest{Documents: []api.Document{{File: "test.yaml", Data: []byte(text)}}, DryRun: true})
	return res
}

func TestAMistypedNamespaceIsCorrected(t *testing.T) {
	u := oneNode(t)
	for name, fix := range map[string]string{
		"defualt": "did you mean default? If not, apply a Namespace of that name first",
		"nowhere": "apply a Namespace of that name first",
	} {
		res := u.applyText("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: " + name + "}\n")
		if len(res.Problems) != 1 || res.Problems[0].Message != `namespace "`+name+`" not found` || res.Problems[0].Fix != fix {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

func TestApplyWarnsOfPodsThatNoNodeCanTake(t *testing.T) {
	u := oneNode(t)
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {app: d}}\n  template:\n    metadata: {labels: {app: d}}\n    spec: {PLACE, containers: [{name: c, image: x}]}\n"
	for place, want := range map[string]string{
		`nodeSelector: {lateen.dev/node-index: "2"}`: "its pods wait: no node has the labels lateen.dev/node-index=2 that nodeSelector asks for",
		`nodeName: n2`: `its pods wait: there is no node "n2"; nodes are n1`,
		`nodeSelector: {lateen.dev/node-index: "1"}`: "",
		`nodeName: n1`: "",
	} {
		res := u.applyText(strings.Replace(deployment, "PLACE", place, 1))
		if len(res.Results) != 1 {
			t.Fatalf("%s: %+v", place, res)
		}
		got := strings.Join(res.Results[0].Warnings, "\n")
		if want == "" && strings.Contains(got, "wait") || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q, want %q", place, got, want)
		}
	}
}
