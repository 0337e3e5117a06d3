package local

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// Words about an object before it was applied again are not shown of the present version, however little time has passed; nor are they when
// nothing changed, or when the control plane names no versions.
func TestWhatIsSaidOfAnotherVersionIsNotSaid(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // the clock stands still
	s := newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, func() time.Time { return at }, newUID)
	apply := func(ports, more string) {
		t.Helper()
		o, err := decodeOne("web.yaml", []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: "+ports+"}]"+more+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.apply(o, "", false); err != nil {
			t.Fatal(err)
		}
	}
	key := model.ServiceKey("shop", "web")
	// read is the control plane's word about the file that it reads.
	read := func() controlObject {
		t.Helper()
		text, err := os.ReadFile(s.file(key))
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := files.Decode("web.yaml", text)
		return controlObject{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", Digest: objects[0].Digest(), Conditions: []api.Condition{{Type: "Accepted", Status: "True"}}}
	}
	said := func(o controlObject) bool {
		return len(ofThisVersion([]controlObject{o}, s.objects)[0].Conditions) > 0
	}
	apply("80", "")
	before := read()
	if !said(before) {
		t.Error("what is said of this version is not there")
	}
	apply("80", "")
	if !said(before) || !said(read()) {
		t.Error("what is said of this version is not there once it was applied again")
	}
	apply("81", "")
	if said(before) {
		t.Error("what is said of the version before is said of this")
	}
	if !said(read()) {
		t.Error("what is said of the next version is not there")
	}
	apply("80", "")
	if said(before) {
		t.Error("what is said of a version is said of the next but one, which is written alike")
	}
	if !said(read()) {
		t.Error("what is said of a version that is as an earlier one was is not there")
	}
	before.Digest = ""
	if !said(before) {
		t.Error("a control plane that names no versions says nothing")
	}
	other := read()
	other.Name, other.Digest = "reported", "x"
	if !said(other) {
		t.Error("nothing is said of what the engine does not keep")
	}
	pod := controlObject{Kind: "Pod", Namespace: "shop", Name: "web", Digest: "x", Conditions: before.Conditions}
	s.objects[model.PodKey("shop", "web")] = &stored{Object: files.Object{Key: model.PodKey("shop", "web"), Value: &corev1.Pod{}}}
	if !said(pod) {
		t.Error("nothing is said of a pod, which the engine reports as it runs")
	}
	if _, err := s.patch(s.objects[key], map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}, false); err != nil {
		t.Fatal(err)
	}
	if now := read(); !said(now) || said(controlObject{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", Digest: strings.Repeat("0", 32), Conditions: now.Conditions}) {
		t.Error("a label's version is not told apart")
	}
}

// Two groups have a kind Gateway, and each may have an object of one name.
func TestWhatIsSaidOfAnotherGroupsObjectIsNotSaid(t *testing.T) {
	s := newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, time.Now, newUID)
	said := map[string]controlObject{}
	var items []api.Object
	for _, apiVersion := range []string{"gateway.networking.k8s.io/v1", "networking.istio.io/v1"} {
		key := model.Key{Group: groupOf(apiVersion), Kind: "Gateway", Namespace: "shop", Name: "way"}
		s.objects[key] = &stored{Object: files.Object{Key: key}, digest: "of " + apiVersion}
		items = append(items, api.Object{Key: apiKey(key), APIVersion: apiVersion})
		said[apiVersion] = controlObject{APIVersion: apiVersion, Kind: "Gateway", Namespace: "shop", Name: "way", Digest: "of " + apiVersion,
			Conditions: []api.Condition{{Type: "Accepted", Reason: apiVersion}}, Problems: []api.Problem{{Message: apiVersion}}}
	}
	told := func(first, second string) [2]api.Object {
		got := [2]api.Object(items)
		attach("Gateway", got[:], ofThisVersion([]controlObject{said[first], said[second]}, s.objects))
		return got
	}
	one, other := items[0].APIVersion, items[1].APIVersion
	for _, got := range [][2]api.Object{told(one, other), told(other, one)} {
		for _, o := range got {
			if len(o.Conditions) != 1 || o.Conditions[0].Reason != o.APIVersion || len(o.Problems) != 1 || o.Problems[0].Message != o.APIVersion {
				t.Errorf("of %s is said %+v, %+v", o.APIVersion, o.Conditions, o.Problems)
			}
		}
	}
	late := said[one]
	late.Digest = said[other].Digest // as if another group's version were this one's
	said[one] = late
	if got := told(one, other); len(got[0].Conditions) != 0 || len(got[1].Conditions) != 1 {
		t.Errorf("a version is known by another group's: %+v", got)
	}
}

// A wait for a roll-out asks whether the status is about the present generation, and not only about one before.
func TestADeploymentsStatusIsAboutItsPresentGeneration(t *testing.T) {
	s := newStore(t.TempDir(), []*fabric.Family{fabric.IPv4}, time.Now, newUID)
	u := newUserObjects(newState(nil, s), nil)
	for generation, image := range []string{"one", "two"} {
		o, err := decodeOne("web.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  selector: {matchLabels: {app: web}}\n"+
			"  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, command: ["+image+"]}]}}\n"))
		if err == nil {
			_, err = s.apply(o, "", false)
		}
		if err != nil {
			t.Fatal(err)
		}
		found, err := u.list("Deployment")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		var d appsv1.Deployment
		if err := json.Unmarshal(found[0].Raw, &d); err != nil {
			t.Fatal(err)
		}
		if want := int64(generation + 1); d.Generation != want || d.Status.ObservedGeneration != want {
			t.Errorf("generation %d, observed %d, want %d", d.Generation, d.Status.ObservedGeneration, want)
		}
	}
}
