package cli

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {k: v}\n"

// The value of a flag that needs none is never the next word.
func TestAValueApartFromDryRunIsExplained(t *testing.T) {
	for _, line := range []string{"apply --dry-run server -f -", "delete --dry-run client pod a", "label --dry-run server pod a b=c", "annotate --dry-run none pod a b=c"} {
		f := newFake(t)
		value := strings.Fields(line)[2]
		want := fmt.Sprintf("error: unexpected argument %q\n  fix: write --dry-run=%s\n", value, value)
		if r := f.run(configMap, strings.Fields(line)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || len(f.asked) > 0 {
			t.Errorf("%s: %+v", line, r)
		}
	}
	f := newFake(t)
	if r := f.run("", "scale", "client", "--replicas=1", "--dry-run"); r.code != ExitOK {
		t.Errorf("a deployment may be called client: %+v", r)
	}
	if r := f.run("", "apply", "--help"); !strings.Contains(r.stdout, "--dry-run[=server|client|none]  ") {
		t.Errorf("%s", r.stdout)
	}
}

func TestDryRunHasTheValuesOfKubectl(t *testing.T) {
	for flag, want := range map[string]struct {
		asked  string // of the engine
		stdout string
	}{
		"--dry-run":        {`"dryRun":true`, "default/service/details created (dry run)"},
		"--dry-run=server": {`"dryRun":true`, "default/service/details created (dry run)"},
		"--dry-run=none":   {`"documents"`, "default/service/details created\n"},
		"--dry-run=client": {"", "default/configmap/settings valid (client dry run)\n"},
	} {
		f := newFake(t)
		r := f.run(configMap, "apply", "-f", "-", flag)
		if r.code != ExitOK || !strings.Contains(r.stdout, want.stdout) {
			t.Errorf("%s: %+v", flag, r)
		}
		asked := strings.Join(f.asked, "\n")
		if want.asked == "" && asked != "" || !strings.Contains(asked, want.asked) || flag == "--dry-run=none" && strings.Contains(asked, `"dryRun"`) {
			t.Errorf("%s: asked %q", flag, asked)
		}
	}
	for _, command := range [][]string{
		{"apply", "-f", "-"}, {"delete", "pod", "a"}, {"label", "pod", "a", "b=c"}, {"annotate", "pod", "a", "b=c"}, {"scale", "d", "--replicas=1"}, {"rollout", "restart", "deploy/d"},
	} {
		f := newFake(t)
		r := f.run(configMap, append(command, "--dry-run=maybe")...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "use server, client, none") || len(f.asked) > 0 {
			t.Errorf("%v: %+v, asked %v", command, r, f.asked)
		}
	}
}

func TestAClientsDryRunReadsTheFileWithoutAMesh(t *testing.T) {
	f := newFake(t)
	f.socket = "no-such.sock"
	r := f.run(configMap+"---\n"+strings.Replace(configMap, "\ndata:", "\ndaat:", 1), "apply", "-f", "-", "-n", "shop", "--dry-run=client")
	if r.code != ExitFailure || r.stdout != "shop/configmap/settings valid (client dry run)\n" || !strings.Contains(r.stderr, "daat: unknown field") {
		t.Errorf("apply: %+v", r)
	}
	if r := f.run(configMap, "delete", "-f", "-", "--dry-run=client"); r.code != ExitOK || r.stdout != "default/configmap/settings valid (client dry run)\n" {
		t.Errorf("delete: %+v", r)
	}
	for _, args := range [][]string{{"label", "pod", "a", "b=c"}, {"annotate", "pod", "a", "b=c"}, {"scale", "d", "--replicas=1"}, {"rollout", "restart", "deploy/d"}, {"delete", "pod", "a"}} {
		if r := f.run("", append(args, "--dry-run=client")...); r.code != ExitOK || !strings.Contains(r.stdout, " (client dry run)\n") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestAServersDryRunOfAPatchChangesNothing(t *testing.T) {
	for _, args := range [][]string{{"label", "pod", "a", "b=c"}, {"annotate", "pod", "a", "b=c"}, {"scale", "d", "--replicas=1"}, {"rollout", "restart", "deploy/d"}} {
		f := newFake(t)
		f.objects = []api.Object{object("pod", "a", `{"metadata":{"name":"a"}}`)}
		f.patched = func(r api.PatchRequest) *api.Error {
			if !r.DryRun {
				t.Errorf("%v changes something", args)
			}
			return nil
		}
		if r := f.run("", append(args, "--dry-run=server")...); r.code != ExitOK || !strings.HasSuffix(r.stdout, " (dry run)\n") || strings.Contains(r.stderr, "Next:") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestAnnotateSetsAnnotations(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{object("ap", "deny", `{"metadata":{"name":"deny","labels":{"k":"label"},"annotations":{"old":"1"}}}`)}
	if r := f.run("", "annotate", "ap", "deny", "istio.io/dry-run=true", "text=free text = of any kind", "gone-"); r.code != ExitOK || r.stdout != "default/authorizationpolicy/deny annotated\n" {
		t.Errorf("%+v", r)
	}
	if !f.askedFor(`POST /v1/patch {"key":{"kind":"AuthorizationPolicy","namespace":"default","name":"deny"},"patch":{"metadata":{"annotations":{"gone":null,"istio.io/dry-run":"true","text":"free text = of any kind"}}}}`) {
		t.Errorf("asked %v", f.asked)
	}
	if r := f.run("", "annotate", "ap/deny", "old=2"); r.code != ExitFailure || !strings.Contains(r.stderr, `annotation old of default/authorizationpolicy/deny is already "1"; add --overwrite`) {
		t.Errorf("%+v", r)
	}
	if r := f.run("", "annotate", "ap/deny", "old=2", "k=v", "--overwrite"); r.code != ExitOK {
		t.Errorf("%+v", r)
	}
	if r := f.run("", "annotate", "ap/deny", "bad key=1"); r.code != ExitUsage || !strings.Contains(r.stderr, `annotation "bad key"`) {
		t.Errorf("%+v", r)
	}
}

func TestRolloutRestartChangesTheTemplate(t *testing.T) {
	f := newFake(t)
	r := f.run("", "rollout", "restart", "deploy/web", "-n", "shop")
	want := `POST /v1/patch {"key":{"kind":"Deployment","namespace":"shop","name":"web"},"patch":{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-11-20T22:00:00Z"}}}}}}`
	if r.code != ExitOK || r.stdout != "shop/deployment/web restarted\n" || !strings.Contains(r.stderr, "Next: lateen rollout status deploy/web -n shop") || !f.askedFor(want) {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
	for _, args := range [][]string{{"rollout", "restart"}, {"rollout", "restart", "svc/web"}, {"rollout", "status"}, {"rollout", "status", "web", "--timeout", "0s"}, {"rollout", "undo", "deploy/web"}} {
		if r := f.run("", args...); r.code != ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestRolloutStatusWaitsForTheDeployment(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{object("deploy", "web", `{"metadata":{"name":"web"},"spec":{"replicas":2},"status":{"replicas":2,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`)}
	if r := f.run("", "rollout", "status", "deploy/web", "--timeout", "5s"); r.code != ExitFailure || !strings.Contains(r.stderr, "deployment/web") {
		t.Errorf("%+v", r)
	}
	f.status, f.declared = api.Status{Control: api.ControlState{Ready: true}}, ""
	f.objects = []api.Object{object("deploy", "web", `{"metadata":{"name":"web"},"spec":{"replicas":1},"status":{"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`)}
	if r := f.run("", "rollout", "status", "deployment", "web"); r.code != ExitOK {
		t.Errorf("%+v", r)
	}
}
