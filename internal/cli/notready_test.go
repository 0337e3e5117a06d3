package cli

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"lateen.dev/lateen/internal/engine/api"
)

func TestWaitSaysWhyAPodIsNotReady(t *testing.T) {
	const backOff = `"restartCount":5,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off 5m0s restarting failed container"}}`
	tests := map[string]struct{ status, why, fix string }{
		"it ends by itself":    {`"containerStatuses":[{"name":"c",` + backOff + `,"lastState":{"terminated":{"exitCode":3,"reason":"Error"}}}]`, "pod/alone (CrashLoopBackOff: exited with code 3)", "`lateen logs alone` shows its output; lateen status says more"},
		"it has no memory":     {`"containerStatuses":[{"name":"c",` + backOff + `,"lastState":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]`, "(CrashLoopBackOff: exited with code 137 (OOMKilled))", "lateen logs alone"},
		"a signal ended it":    {`"containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":139,"signal":11,"reason":"Error"}}}]`, "(ended by signal 11)", "lateen logs alone"},
		"no such command":      {`"containerStatuses":[{"name":"c","state":{"waiting":{"reason":"CrashLoopBackOff","message":"command \"x\" is in none of the directories of PATH; next start in 3.2s"}}}]`, `(CrashLoopBackOff: command "x" is in none of the directories of PATH)`, "fix: lateen status says more"},
		"no such image":        {`"containerStatuses":[{"name":"a","ready":true,"state":{"running":{}}},{"name":"b","state":{"waiting":{"reason":"ImagePullBackOff","message":"not found"}}}]`, "(container b: ImagePullBackOff: not found)", "fix: lateen status says more"},
		"no node":              {`"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"no node has room"}]`, "pod/alone (no node has room)", "fix: lateen status says more"},
		"its probe fails":      {`"conditions":[{"type":"Ready","status":"False","message":"its readiness probe fails"}]`, "pod/alone (its readiness probe fails)", "fix: lateen status says more"},
		"nobody says anything": {`"containerStatuses":[{"name":"c","state":{"waiting":{"reason":"ContainerCreating"}}}]`, "pod/alone\n", "fix: lateen status says more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := acknowledging(t, func(*fakeEngine, int) {})
			f.objects[2].Raw = []byte(`{"metadata":{"name":"alone"},"status":{"phase":"Running",` + tt.status + `}}`)
			r := f.waits("250ms", "alone")
			if r.code != ExitFailure || !strings.Contains(r.stderr, tt.why) || !strings.Contains(r.stderr, tt.fix) || strings.Contains(r.stderr, "next start") {
				t.Errorf("got %s, want %q and %q", r.stderr, tt.why, tt.fix)
			}
		})
	}
}

// A deployment whose pods cannot be made has no pod that could say why.
func TestWaitForADeploymentSaysWhyItHasNoPods(t *testing.T) {
	lacking := func(conditions string) string {
		return `{"metadata":{"name":"web","namespace":"default","uid":"u-web"},"spec":{"replicas":1},"status":{"conditions":[` + conditions + `]}}`
	}
	const failure = `{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"service account default/web not found"}`
	for conditions, want := range map[string]string{
		failure: "0 of 1 pods of the present version; service account default/web not found",
		`{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded"}`: "0 of 1 pods of the present version; ProgressDeadlineExceeded",
		`{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable"}`: "0 of 1 pods of the present version",
		`{"type":"ReplicaFailure","status":"False","reason":"Past"}`:                  "0 of 1 pods of the present version",
	} {
		var d appsv1.Deployment
		if err := json.Unmarshal([]byte(lacking(conditions)), &d); err != nil {
			t.Fatal(err)
		}
		if got := deploymentTrouble(&d); got != want {
			t.Errorf("%s: got %q, want %q", conditions, got, want)
		}
	}
	f := newFake(t)
	f.status = sampleStatus()
	f.objects = []api.Object{object("deploy", "web", lacking(failure))}
	if r := f.waits("1s", "deploy/web"); r.code != ExitFailure || !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), "deployment/web (0 of 1 pods of the present version; service account default/web not found)") {
		t.Errorf("%+v", r)
	}
}

// The pods of a deployment that is waited for by name are not waited for themselves, but they tell why it is not available.
func TestWaitForADeploymentSaysWhyItsPodsAreNotReady(t *testing.T) {
	f := acknowledging(t, func(*fakeEngine, int) {})
	f.objects[0].Raw = []byte(strings.Replace(string(f.objects[0].Raw), `"availableReplicas":1`, `"availableReplicas":0`, 1))
	f.objects[1].Raw = []byte(`{"metadata":{"name":"web-a","ownerReferences":[{"kind":"Deployment","name":"web","uid":"u-web"}]},
		"status":{"phase":"Running","containerStatuses":[{"name":"c","state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":3}}}]}}`)
	r := f.waits("250ms", "deploy/web")
	if want := "deployment/web (0 of 1 pods available), pod/web-a (CrashLoopBackOff: exited with code 3)"; r.code != ExitFailure || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "lateen logs web-a") {
		t.Errorf("got %s, want %s", r.stderr, want)
	}
}

func TestWaitSaysWhatIsReady(t *testing.T) {
	policy := accepted(object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`))
	for args, want := range map[string]string{
		"":                         "2 pods, 1 deployment, 1 node proxy",
		"deploy/web":               "1 pod, 1 deployment, 1 node proxy",
		"deploy/web pod/web-a":     "1 pod, 1 deployment, 1 node proxy",
		"deploy/web alone":         "2 pods, 1 deployment, 1 node proxy",
		"alone":                    "1 pod, 1 node proxy",
		"ap/deny":                  "1 authorizationpolicy, 1 node proxy",
		"deploy/web alone ap/deny": "2 pods, 1 deployment, 1 authorizationpolicy, 1 node proxy",
	} {
		f := acknowledging(t, func(*fakeEngine, int) {})
		// The local engine shows its node proxies as pods, too.
		proxy := object("pod", "ztunnel-n1", `{"metadata":{"name":"ztunnel-n1","labels":{"app":"ztunnel"}},"spec":{"hostNetwork":true,"serviceAccountName":"ztunnel"},
			"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		f.objects = append(f.objects, policy, proxy)
		if r := f.run("", append([]string{"wait", "--timeout", "60s"}, strings.Fields(args)...)...); r.code != ExitOK || r.stdout != "ready: "+want+"\n" {
			t.Errorf("%q: got %+v, want %q", args, r, want)
		}
	}
	if got := (readyCounts{}).String(); got != "nothing is here to wait for" {
		t.Error(got)
	}
}

// A pod that is being ended counts no more: its deployment has another one in its place.
func TestWaitCountsNoPodThatIsBeingEnded(t *testing.T) {
	for _, args := range []string{"", "deploy/web"} {
		f := acknowledging(t, func(*fakeEngine, int) {})
		old := object("pod", "web-old", `{"metadata":{"name":"web-old","deletionTimestamp":"2026-11-20T22:00:00Z","ownerReferences":[{"kind":"Deployment","name":"web","uid":"u-web"}]},
			"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		f.status.Pods = append(f.status.Pods, api.PodState{Namespace: "default", Name: "web-old", Mesh: "plain"})
		f.objects = append(f.objects, old)
		want := map[string]string{"": "ready: 2 pods, 1 deployment", "deploy/web": "ready: 1 pod, 1 deployment"}[args]
		if r := f.run("", append([]string{"wait", "--timeout", "60s"}, strings.Fields(args)...)...); r.code != ExitOK || !strings.HasPrefix(r.stdout, want) {
			t.Errorf("%q: got %+v, want %q", args, r, want)
		}
	}
}

// A reason that only the user can remove is told while the wait lasts, once.
func TestWaitSaysAtOnceWhyPodsCannotBeMade(t *testing.T) {
	f := newFake(t)
	f.status = sampleStatus()
	f.objects = []api.Object{object("deploy", "web", `{"metadata":{"name":"web","uid":"u-web"},"spec":{"replicas":1},
		"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no node has the labels moon=dark"}]}}`),
		object("pod", "alone", `{"metadata":{"name":"alone"},"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available"}]}}`)}
	r := f.run("", "wait", "deploy/web", "alone", "--timeout", "4s")
	for _, want := range []string{"warning: deployment/web: no node has the labels moon=dark\n", "warning: pod/alone: 0/1 nodes are available\n"} {
		if r.code != ExitFailure || strings.Count(r.stderr, want) != 1 {
			t.Errorf("got %+v, want %q once", r, want)
		}
	}
}

// kubectl has no wait without a condition, so its users write one.
func TestWaitTakesTheConditionsOfKubectlThatItWaitsFor(t *testing.T) {
	for _, condition := range []string{"condition=available", "condition=Ready", "condition=Ready=true"} {
		f := acknowledging(t, func(*fakeEngine, int) {})
		if r := f.run("", "wait", "--for="+condition, "deploy/web"); r.code != ExitOK || !strings.HasPrefix(r.stdout, "ready: ") {
			t.Errorf("%s: %+v", condition, r)
		}
	}
	for condition, fix := range map[string]string{
		"delete":                "fix: leave it out: `lateen delete` returns when the pods are gone\n",
		"condition=Progressing": "fix: leave --for out: wait returns when its targets are ready and in force in every node proxy\n",
		"":                      "fix: leave --for out",
	} {
		f := newFake(t)
		if r := f.run("", "wait", "--for="+condition, "deploy/web"); r.code != ExitUsage || !strings.Contains(r.stderr, fix) || len(f.asked) > 0 {
			t.Errorf("%s: %+v", condition, r)
		}
	}
}

// A pod that leaves is plain to its own clients at once; other proxies and its own connections may still use the mesh.
func TestWaitLastsUntilAPodHasLeftTheMesh(t *testing.T) {
	f := acknowledging(t, func(f *fakeEngine, look int) {
		f.status.Pods[1] = api.PodState{Namespace: "default", Name: "alone", Mesh: "releasing", MeshReason: "other proxies not updated yet"}
		if look > 3 {
			f.status.Pods[1] = api.PodState{Namespace: "default", Name: "alone", Mesh: "plain"}
		}
	})
	looks := 0
	inner := f.looking
	f.looking = func() { looks++; inner() }
	if r := f.run("", "wait", "--timeout", "60s"); r.code != ExitOK || looks < 4 {
		t.Errorf("after %d looks: %+v", looks, r)
	}
}

func TestWaitNamesTheLogOfTheContainerThatCrashed(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{object("pod", "x", `{"metadata":{"name":"x","namespace":"default"},"spec":{"containers":[{"name":"main"},{"name":"side"}]},
		"status":{"containerStatuses":[{"name":"main","ready":true,"state":{"running":{}}},{"name":"side","state":{"terminated":{"exitCode":3}}}]}}`)}
	if r := f.waits("300ms", "pod/x"); !strings.Contains(r.stderr, "`lateen logs x -c side` shows its output") {
		t.Errorf("%+v", r)
	}
}
