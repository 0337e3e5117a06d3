package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func TestAPIResources(t *testing.T) {
	f := newFake(t)
	f.socket = "no-such.sock"
	r := f.run("", "api-resources", "-o", "json")
	var all []printer.APIResource
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || r.code != ExitOK {
		t.Fatalf("%v, %+v", err, r)
	}
	// Every kind that has a short name can be applied, and is what the engine takes it for.
	for _, k := range api.Kinds() {
		i := slices.IndexFunc(all, func(r printer.APIResource) bool { return r.Kind == k.Name && r.Name == k.Plural })
		if i < 0 || all[i].Namespaced != k.Namespaced || all[i].APIVersion != k.APIVersion || !slices.Equal(all[i].ShortNames, k.Short) {
			t.Errorf("%s is not there as it is in api.Kinds: %+v", k.Name, all[max(i, 0)])
		}
	}
	effect := map[string]string{}
	names := map[string]bool{}
	for _, r := range all {
		effect[r.Name+" "+r.APIVersion] = r.Effect
		group, _, _ := strings.Cut(r.APIVersion, "/")
		if names[r.Name+"."+group] {
			t.Errorf("%s is there twice", r.Name)
		}
		names[r.Name+"."+group] = true
		if (r.Effect == printer.EffectNone) != (r.Reason != "") {
			t.Errorf("%s has the effect %s, reason %q", r.Name, r.Effect, r.Reason)
		}
	}
	for name, want := range map[string]string{
		"pods v1": "engine", "deployments apps/v1": "engine", "authorizationpolicies security.istio.io/v1": "mesh", "virtualservices networking.istio.io/v1": "none",
		"jobs batch/v1": "none", "networkpolicies networking.k8s.io/v1": "none", "gateways networking.istio.io/v1": "none", "gateways gateway.networking.k8s.io/v1": "mesh",
		"ingresses networking.k8s.io/v1": "none", "endpoints v1": "none", "storageclasses storage.k8s.io/v1": "none",
	} {
		if effect[name] != want {
			t.Errorf("%s: %q, want %s", name, effect[name], want)
		}
	}
	if r := f.run("", "api-resources", "--effective", "-o", "name"); strings.Contains(r.stdout, "virtualservices") || !strings.Contains(r.stdout, "peerauthentications.security.istio.io\n") {
		t.Errorf("%+v", r)
	}
	heading := strings.Fields(strings.Split(f.run("", "api-resources", "-o", "wide").stdout, "\n")[0])
	if strings.Join(heading, " ") != "NAME SHORTNAMES APIVERSION NAMESPACED KIND EFFECT REASON" {
		t.Errorf("heading %v", heading)
	}
}
