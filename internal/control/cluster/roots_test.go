package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
}

// published runs the publisher over an API server and reads what it wrote.
type published struct {
	*Roots
	t   *testing.T
	api *api
	log said
}

func publishing(t *testing.T, api *api, istio string) *published {
	t.Helper()
	p := &published{t: t, api: api}
	p.Roots = NewRoots(api, home, istio, p.log.logger())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

func (p *published) in(namespace string) string {
	m, err := p.api.CoreV1().ConfigMaps(namespace).Get(p.t.Context(), RootConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return m.Data[RootKey]
}

// reached says whether every namespace that counts holds a bundle.
func (p *published) reached(bundle []byte) bool {
	own, others := p.Unpublished(bundle)
	return !own && len(others) == 0
}

func (p *published) holds(bundle string, namespaces ...string) {
	p.t.Helper()
	for _, n := range namespaces {
		eventually(p.t, n+" holds "+bundle, func() bool { return p.in(n) == bundle })
	}
}

func TestEveryNamespaceHoldsTheRoots(t *testing.T) {
	going := namespace("going")
	going.Status.Phase = corev1.NamespaceTerminating
	api := newAPI(namespace(home), namespace("a"), going)
	p := publishing(t, api, "")
	if p.reached([]byte("one")) {
		t.Error("published before anything was")
	}
	p.Publish([]byte("one"))
	p.holds("one", home, "a")
	eventually(t, "it is known", func() bool { return p.reached([]byte("one")) })
	if _, err := api.CoreV1().Namespaces().Create(t.Context(), namespace("new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.holds("one", "new")
	p.Publish([]byte("two"))
	p.holds("two", home, "a", "new")
	eventually(t, "they are watched", api.watches.Began("configmaps"))
	if err := api.CoreV1().ConfigMaps("a").Delete(t.Context(), RootConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.holds("two", "a")
	changed, err := api.CoreV1().ConfigMaps("a").Get(t.Context(), RootConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed.Data[RootKey], changed.Data["theirs"] = "mine", "stays"
	if _, err := api.CoreV1().ConfigMaps("a").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.holds("two", "a")
	now, err := api.CoreV1().ConfigMaps("a").Get(t.Context(), RootConfigMap, metav1.GetOptions{})
	if err != nil || now.Data["theirs"] != "stays" || !ours(now.Labels) {
		t.Errorf("%+v %v", now, err)
	}
	if p.in("going") != "" {
		t.Error("a namespace that is going was written to")
	}
	eventually(t, "what was repaired is known", func() bool { return p.reached([]byte("two")) })
	if known, err := p.Known(t.Context()); err != nil || string(known) != "two" {
		t.Errorf("known %q, %v", known, err)
	}
	writes := api.writes.Load()
	time.Sleep(50 * time.Millisecond)
	if api.writes.Load() != writes {
		t.Error("it writes although nothing changes")
	}
}

func TestAnotherOwnersRootsAreLeftAlone(t *testing.T) {
	theirs := func(namespace, label, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RootConfigMap, Labels: map[string]string{label: value}}, Data: map[string]string{RootKey: "theirs"}}
	}
	objects := func() []runtime.Object {
		return []runtime.Object{namespace(home), namespace("a"), namespace("b"), namespace("c"), namespace("d"),
			theirs("a", istioLabel, "true"), theirs("b", trustManagerLabel, "x"), theirs("c", managedByLabel, "Helm"), theirs("d", "color", "red")}
	}
	p := publishing(t, newAPI(objects()...), "")
	p.Publish([]byte("ours"))
	p.holds("ours", home)
	p.holds("theirs", "a", "b", "c", "d")
	eventually(t, "it is told", func() bool { return strings.Contains(p.log.String(), "left alone") })
	if n := strings.Count(p.log.String(), "left alone"); n != 1 {
		t.Errorf("told %d times", n)
	}
	eventually(t, "the rest is published", func() bool { return p.reached([]byte("ours")) })
	take := publishing(t, newAPI(objects()...), "istio-system")
	take.Publish([]byte("ours"))
	take.holds("ours", home, "a")
	take.holds("theirs", "b", "c", "d")
	if m, err := take.api.CoreV1().ConfigMaps("a").Get(t.Context(), RootConfigMap, metav1.GetOptions{}); err != nil || !ours(m.Labels) || m.Labels[istioLabel] != "" {
		t.Errorf("%+v %v", m, err)
	}
}

func TestRootsThatCannotBeWrittenAreTriedAgain(t *testing.T) {
	api := newAPI(namespace(home), namespace("ending"))
	refusals := 3
	api.PrependReactor("create", "configmaps", func(action kubetesting.Action) (bool, runtime.Object, error) {
		switch {
		case action.GetNamespace() == "ending":
			err := apierrors.NewForbidden(corev1.Resource("configmaps"), RootConfigMap, nil)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return true, nil, err
		case refusals > 0:
			refusals--
			return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), RootConfigMap, nil)
		}
		return false, nil, nil
	})
	p := publishing(t, api, "")
	p.Publish([]byte("one"))
	p.holds("one", home)
	if n := strings.Count(p.log.String(), "needs the rule"); n != 1 || strings.Contains(p.log.String(), "ending") {
		t.Errorf("log: %s", p.log.String())
	}
}

func rootsOf(namespace, bundle string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RootConfigMap, Labels: labels}, Data: map[string]string{RootKey: bundle}}
}

// What the mesh trusts is read where only its operator writes: any tenant can make a ConfigMap of that name with any label.
func TestATenantsRootsAreNotWhatTheMeshTrusts(t *testing.T) {
	for name, c := range map[string]struct {
		istio   string
		objects []runtime.Object
		want    string
	}{
		"a tenant's alone":              {"", []runtime.Object{rootsOf("aaa", "EVIL", labels())}, ""},
		"beside the own":                {"", []runtime.Object{rootsOf("aaa", "EVIL", labels()), rootsOf(home, "own", labels())}, "own"},
		"the own without labels":        {"", []runtime.Object{rootsOf(home, "own", nil)}, "own"},
		"Istio's in the own":            {"", []runtime.Object{rootsOf(home, "istio's", map[string]string{istioLabel: "true"})}, ""},
		"taken over":                    {"istio-system", []runtime.Object{rootsOf("aaa", "EVIL", map[string]string{istioLabel: "true"}), rootsOf("istio-system", "istio's", map[string]string{istioLabel: "true"})}, "istio's"},
		"taken over, a tenant's alone":  {"istio-system", []runtime.Object{rootsOf("aaa", "EVIL", map[string]string{istioLabel: "true"})}, ""},
		"not taken over, Istio's there": {"", []runtime.Object{rootsOf("istio-system", "istio's", map[string]string{istioLabel: "true"})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log said
			known, err := NewRoots(newAPI(c.objects...), home, c.istio, log.logger()).Known(t.Context())
			if err != nil || string(known) != c.want {
				t.Errorf("known: %q, %v; want %q", known, err, c.want)
			}
		})
	}
	r := newReplica(newAPI(rootsOf("aaa", "EVIL", labels())), nil)
	if _, err := r.open(t.Context()); err != nil {
		t.Errorf("a tenant keeps the CA from opening: %v", err)
	}
}

// Somebody's quota is used up: his namespace is named, with the reason, and all others have the roots.
func TestANamespaceThatTakesNoRootsIsNamed(t *testing.T) {
	api := newAPI(namespace(home), namespace("a"), namespace("tenant"))
	api.PrependReactor("create", "configmaps", func(action kubetesting.Action) (bool, runtime.Object, error) {
		if action.GetNamespace() == "tenant" {
			return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), RootConfigMap, errors.New("exceeded quota: few, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"))
		}
		return false, nil, nil
	})
	p := publishing(t, api, "")
	p.Publish([]byte("one"))
	p.holds("one", home, "a")
	eventually(t, "it is named", func() bool {
		own, others := p.Unpublished([]byte("one"))
		return !own && len(others) == 1 && strings.Contains(others[0], "tenant (") && strings.Contains(others[0], "exceeded quota")
	})
	if log := p.log.String(); strings.Contains(log, "needs the rule") {
		t.Errorf("the right is blamed: %s", log)
	}
	if own, _ := p.Unpublished([]byte("two")); !own {
		t.Error("the own namespace is not told apart")
	}
}

// Who changes the roots in his namespace again and again makes the leader write at its own pace, not at his.
func TestRootsThatAreFoughtOverAreWrittenSeldom(t *testing.T) {
	api := newAPI(namespace(home), namespace("tenant"))
	p := publishing(t, api, "")
	p.Publish([]byte("one"))
	p.holds("one", home, "tenant")
	until := time.Now().Add(3 * time.Second)
	for fights := 0; time.Now().Before(until); {
		if p.in("tenant") == "one" {
			fights++
			if _, err := api.CoreV1().ConfigMaps("tenant").Update(t.Context(), rootsOf("tenant", "mine", labels()), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if fights > 8 {
				t.Fatalf("it was put right %d times in 3 s", fights)
			}
		}
		time.Sleep(time.Millisecond)
	}
	p.holds("one", "tenant")
	// Other roots are there at once.
	p.Publish([]byte("two"))
	p.holds("two", home, "tenant")
}

func TestPutRightRootsRest(t *testing.T) {
	var log said
	r, now := NewRoots(newAPI(), home, "", log.logger()), start
	for _, want := range []time.Duration{0, leastRetry, 2 * leastRetry, 4 * leastRetry} {
		if got := r.rest("a", "one", now); got != want {
			t.Errorf("rest %s, want %s", got, want)
		}
		r.repair("a", "one", now)
	}
	for range 100 {
		r.repair("a", "one", now)
	}
	if got := r.rest("a", "one", now); got != longestRetry {
		t.Errorf("the longest rest is %s", got)
	}
	if r.rest("a", "two", now) != 0 || r.rest("b", "one", now) != 0 || r.rest("a", "one", now.Add(calmFor)) != 0 {
		t.Error("it rests without a cause")
	}
}
