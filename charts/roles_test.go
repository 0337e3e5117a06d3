package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"lateen.dev/lateen/internal/source/kube"
)

// need is one right, and who needs it.
type need struct{ role, group, resource, verbs, names string }

// needs are the rights that the programs use beyond what the source reads: internal/control/cluster, internal/control/conditions,
// internal/deployer and internal/agent say the same in their words.
var needs = []need{
	{"lateen-control", "security.istio.io", "authorizationpolicies/status peerauthentications/status requestauthentications/status", "patch", ""},
	{"lateen-control", "networking.istio.io", "serviceentries/status workloadentries/status", "patch", ""},
	{"lateen-control", "gateway.networking.k8s.io", "gateways/status gatewayclasses/status", "patch", ""},
	{"lateen-control", "", "services/status", "patch", ""},
	{"lateen-control", "authentication.k8s.io", "tokenreviews", "create", ""},
	{"lateen-control", "", "configmaps", "create", ""},
	{"lateen-control", "", "configmaps", "get list watch update", "istio-ca-root-cert"},
	{"lateen-control", "", "configmaps", "get list watch update", "lateen-assignments"},
	{"lateen-control", "", "configmaps", "list watch", "istio"},
	{"lateen-control", "", "events", "create", ""},
	{"lateen-control", "coordination.k8s.io", "leases", "create", ""},
	{"lateen-control", "coordination.k8s.io", "leases", "get update", "lateen-control"},
	{"lateen-control", "", "secrets", "create", ""},
	{"lateen-control", "", "secrets", "get list watch update", "lateen-ca"},
	{"lateen-control", "", "secrets", "get list watch", "cacerts"},
	{"lateen-deployer", "gateway.networking.k8s.io", "gatewayclasses gateways", "list watch", ""},
	{"lateen-deployer", "gateway.networking.k8s.io", "gateways/status", "patch", ""},
	{"lateen-deployer", "", "configmaps", "get", ""},
	{"lateen-deployer", "apps", "deployments", "create get list patch watch", ""},
	{"lateen-deployer", "", "services serviceaccounts", "create get patch", ""},
	{"lateen-deployer", "autoscaling", "horizontalpodautoscalers", "create delete get patch", ""},
	{"lateen-deployer", "policy", "poddisruptionbudgets", "create delete get patch", ""},
	{"lateen-deployer-defaults", "", "configmaps", "list", ""},
	{"lateen-deployer-lease", "coordination.k8s.io", "leases", "create", ""},
	{"lateen-deployer-lease", "coordination.k8s.io", "leases", "get update", "lateen-deployer"},
	{"lateen-agent", "", "pods namespaces", "get list watch", ""},
	{"lateen-agent", "", "pods/status", "patch", ""},
	{"lateen-agent", "", "events", "create", ""},
	{"lateen-agent", "apps", "daemonsets", "get list watch", "lateen-agent"},
	{"lateen-agent", "", "serviceaccounts/token", "create", "lateen-cni"},
	{"lateen-cni", "", "pods namespaces", "get", ""},
}

// allNeeds are needs and what the source reads: it lists and watches, and who writes an object's conditions gets the object first.
func allNeeds() []need {
	all := slices.Clone(needs)
	for _, r := range kube.Reads() {
		verbs := "list watch"
		if slices.ContainsFunc(needs, func(n need) bool {
			return n.group == r.Group && n.verbs == "patch" && slices.Contains(strings.Fields(n.resource), r.Resource+"/status") && n.role == "lateen-control"
		}) {
			verbs = "get " + verbs
		}
		all = append(all, need{"lateen-control", r.Group, r.Resource, verbs, ""})
	}
	return all
}

func rights(role, group, resources, verbs, names string) []string {
	var out []string
	for _, resource := range strings.Fields(resources) {
		for _, verb := range strings.Fields(verbs) {
			out = append(out, strings.TrimSpace(strings.Join([]string{role, verb, resource + "." + group, names}, " ")))
		}
	}
	return out
}

func TestRolesAllowWhatIsNeededAndNothingElse(t *testing.T) {
	var want, got []string
	for _, n := range allNeeds() {
		want = append(want, rights(n.role, n.group, n.resource, n.verbs, n.names)...)
	}
	for _, o := range rendered(t, "lateen", nil).Objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		raw, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := json.Unmarshal(raw, &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			for _, group := range r.APIGroups {
				got = append(got, rights(role.Name, group, strings.Join(r.Resources, " "), strings.Join(r.Verbs, " "), strings.Join(r.ResourceNames, " "))...)
			}
		}
	}
	for _, right := range got {
		if strings.Contains(right, "*") {
			t.Errorf("%s is everything", right)
		}
		if !slices.Contains(want, right) {
			t.Errorf("allowed and needed by nobody: %s", right)
		}
	}
	for _, right := range want {
		if !slices.Contains(got, right) {
			t.Errorf("needed and not allowed: %s", right)
		}
	}
}

func TestEveryRuleSaysWhatNeedsIt(t *testing.T) {
	files, err := filepath.Glob("lateen/templates/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "- apiGroups:") {
				continue
			}
			rules++
			if !strings.HasPrefix(lines[i-1], "# ") {
				t.Errorf("%s:%d: no comment above the rule says what needs it", file, i+1)
			}
		}
	}
	if rules < 20 {
		t.Errorf("found %d rules only", rules)
	}
}

// A node proxy carries everybody's connections: a token for the API server would make it worth breaking into.
func TestTheProxyHasNoRights(t *testing.T) {
	objects := rendered(t, "lateen", values(t, everything)).Objects
	for _, o := range objects {
		if raw, _ := o.MarshalJSON(); strings.HasSuffix(o.GetKind(), "Binding") && strings.Contains(string(raw), `"lateen-node"`) {
			t.Errorf("%s %s gives the node proxy rights", o.GetKind(), o.GetName())
		}
	}
	if auto := podOf(t, objects, "DaemonSet", "lateen-node").Spec.AutomountServiceAccountToken; auto == nil || *auto {
		t.Error("the node proxy gets a token for the API server")
	}
}

// The deployer has no rights to look for an Istio where none is to be seen. After a take-over it looks into Istio's namespace alone.
func TestTheDeployerLooksForAnIstioWhereItMayRun(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                             "",
		"{deployer: {istioClass: true}}": "ClusterRole /lateen-deployer",
		"{takeOver: istio}":              "Role istio-system/lateen-deployer-istio",
		"{takeOver: istio, mesh: {rootNamespace: mesh}, deployer: {namespaces: [a], istioClass: true}}": "Role mesh/lateen-deployer-istio",
	} {
		got := ""
		for _, o := range rendered(t, "lateen", values(t, text)).Objects {
			raw, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			var role rbacv1.ClusterRole
			if !strings.HasSuffix(o.GetKind(), "Role") || !strings.HasPrefix(o.GetName(), "lateen-deployer") || json.Unmarshal(raw, &role) != nil {
				continue
			}
			if slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, "leases") && slices.Contains(r.Verbs, "list")
			}) {
				got += o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			}
		}
		if got != want {
			t.Errorf("%s: %q may list Leases, want %q", text, got, want)
		}
	}
}
