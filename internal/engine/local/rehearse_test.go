package local

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model"
)

const deny = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny, namespace: shop}\nspec: {action: DENY}\n"

// The control plane is asked about what the object would become, with what others have added to it.
func TestADryRunIsJudgedByTheControlPlane(t *testing.T) {
	s := newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, time.Now, newUID)
	namespace, err := decodeOne("ns.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.apply(namespace, "", false); err != nil {
		t.Fatal(err)
	}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"istio.io/dataplane-mode": "ambient"}}}
	if _, err := s.patch(s.objects[model.NamespaceKey("shop")], patch, false); err != nil {
		t.Fatal(err)
	}
	policy, err := decodeOne("deny.yaml", []byte(deny))
	if err != nil {
		t.Fatal(err)
	}
	var res api.ApplyResult
	var made []*stored
	for _, o := range []*stored{{Object: namespace}, {Object: policy}} {
		action, now, err := s.merge(o.Object, "", true)
		if err != nil {
			t.Fatal(err)
		}
		made, res.Results = append(made, now), append(res.Results, api.ObjectResult{Key: apiKey(o.Key), Action: action})
	}
	sent := ""
	rehearse(t.Context(), &res, made, func(_ context.Context, documents []byte) ([]byte, error) {
		sent = string(documents)
		return []byte(`{"objects": [{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "namespace": "shop", "name": "deny",
			"conditions": [{"type": "Accepted", "status": "True"}], "findings": [{"code": "denies-nothing", "severity": "warning", "message": "it denies nothing"}]}]}`), nil
	})
	if !strings.Contains(sent, "istio.io/dataplane-mode: ambient") || strings.Count(sent, "---\n") != 2 {
		t.Errorf("sent\n%s", sent)
	}
	if len(res.Results[0].Findings) != 0 || len(res.Results[1].Findings) != 1 || len(res.Results[1].Conditions) != 1 || res.Unasked != "" {
		t.Errorf("got %+v", res)
	}
	if s.objects[policy.Key] != nil {
		t.Error("the dry run stored the object")
	}

	res.Unasked = ""
	rehearse(t.Context(), &res, made, func(context.Context, []byte) ([]byte, error) { return nil, errors.New("connection refused") })
	if res.Unasked != "connection refused" {
		t.Errorf("a control plane that does not answer: %+v", res)
	}
}

func TestProblemsDoNotNameTheEnginesOwnFiles(t *testing.T) {
	problems := []api.Problem{
		{File: "/run/lateen/m/objects/user/vs.yaml", Line: 1, Object: "VirtualService shop/vs"},
		{File: "/run/lateen/m/control/assignments.json", Message: "damaged"},
		{File: "/srv/policy.yaml", Line: 3, Object: "AuthorizationPolicy shop/a"},
	}
	unplaced(problems, "/run/lateen/m")
	if problems[0].File != "" || problems[0].Line != 0 || problems[1].File == "" || problems[2].Line != 3 {
		t.Errorf("got %+v", problems)
	}
}

// Objects that nothing acts on are found by any word for their kind, and say why nothing does.
func TestKindsThatAreIgnoredHaveAName(t *testing.T) {
	for word, want := range map[string]string{"networkpolicies": "NetworkPolicy", "NetworkPolicy": "NetworkPolicy", "networkpolicy": "NetworkPolicy", "jobs": "Job", "job": "Job",
		"ingresses": "Ingress", "endpoints": "Endpoints", "clusterroles": "ClusterRole", "pods": "Pod", "svc": "Service", "gateways": "Gateway", "cronjobs.batch": "CronJob", "spaceships": ""} {
		if kind, known := kindOf(word); kind.Name != want || known != (want != "") {
			t.Errorf("%s: %+v, %t", word, kind, known)
		}
	}
	if got := inKind(api.Key{Kind: "clusterrole", Namespace: "default", Name: "x"}); got != (api.Key{Kind: "ClusterRole", Name: "x"}) {
		t.Errorf("got %+v", got)
	}
	for text, want := range map[string]string{
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n":                                    "stored but ignored: local meshes cannot run Jobs",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\n":               "stored but ignored: Kubernetes acts on it; the mesh does not read it",
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x}\nspec: {}\n": "",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x}\n":                               "",
	} {
		o, err := decodeOne("x.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := ignored(&stored{Object: o}); got != want {
			t.Errorf("%s: %q, want %q", o.Kind, got, want)
		}
	}
}
