package install

import (
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/install/render"
)

// installed is a cluster with all objects of an installation, as the command or as Helm made them.
func installed(t *testing.T) (*Cluster, *Record) {
	t.Helper()
	c := cluster(t)
	want, err := desired(options(), "v1.36.3", true)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(want.crds, want.objects)
	render.Sort(all)
	for _, o := range all {
		c.put(t, o)
	}
	return c, &Record{Namespace: DefaultNamespace, Version: want.version, State: stateInstalled}
}

func drift(t *testing.T, c *Cluster, r *Record) (said []string, guards bool) {
	t.Helper()
	steps, err := c.Drift(t.Context(), options(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		said = append(said, strings.Join(append([]string{string(s.Action), s.Called()}, s.Fields...), " "))
		guards = guards || s.Guards()
	}
	return said, guards
}

func TestAnInstallationThatNobodyTouchedHasNotDrifted(t *testing.T) {
	c, r := installed(t)
	if said, _ := drift(t, c, r); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

func TestWhatIsGoneOrChangedIsNamed(t *testing.T) {
	remove := func(kind, name string) func(*testing.T, *Cluster) {
		return func(t *testing.T, c *Cluster) {
			if err := c.objects().remove(t.Context(), named(kind, "", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	change := func(kind, namespace, name string, edit func(*unstructured.Unstructured)) func(*testing.T, *Cluster) {
		return func(t *testing.T, c *Cluster) {
			o, err := c.objects().get(t.Context(), named(kind, namespace, name))
			if err != nil || o == nil {
				t.Fatal(o, err)
			}
			edit(o)
			client, err := c.objects().of(o)
			if err == nil {
				_, err = client.Update(t.Context(), o, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	fewer := change("ClusterRole", "", "lateen-control", func(o *unstructured.Unstructured) {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		_ = unstructured.SetNestedSlice(o.Object, rules[1:], "rules")
	})
	for name, x := range map[string]struct {
		change func(*testing.T, *Cluster)
		want   []string
		helms  []string // of an installation of Helm's
		guards bool
	}{
		"an admission policy":   {remove("ValidatingAdmissionPolicy", "lateen-selectors"), []string{"create validatingadmissionpolicy/lateen-selectors"}, []string{"create validatingadmissionpolicy/lateen-selectors"}, true},
		"what puts it in force": {remove("ValidatingAdmissionPolicyBinding", "lateen-agent"), []string{"create validatingadmissionpolicybinding/lateen-agent"}, []string{"create validatingadmissionpolicybinding/lateen-agent"}, true},
		"a rule of a role":      {fewer, []string{"change clusterrole/lateen-control rules"}, nil, true},
		"a role that is no longer ours by its labels": {change("ClusterRole", "", "lateen-agent", func(o *unstructured.Unstructured) { o.SetLabels(nil) }),
			[]string{"change clusterrole/lateen-agent metadata.labels"}, nil, true},
		"the number of replicas": {change("Deployment", DefaultNamespace, controlName, func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas")
		}), []string{"change lateen-system/deployment/lateen-control spec.replicas"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := installed(t)
			x.change(t, c)
			if said, guards := drift(t, c, r); !slices.Equal(said, x.want) || guards != x.guards {
				t.Errorf("got %q, about guards: %v; want %q, %v", said, guards, x.want, x.guards)
			}
			r.Helm = true
			if said, _ := drift(t, c, r); !slices.Equal(said, x.helms) {
				t.Errorf("of Helm's: got %q, want %q", said, x.helms)
			}
		})
	}
}

func TestTheValuesOfTheInstallationAreNoDrift(t *testing.T) {
	c, r := installed(t)
	r.Values = map[string]any{"control": map[string]any{"replicas": 3}}
	if said, _ := drift(t, c, r); !slices.Equal(said, []string{"change lateen-system/deployment/lateen-control spec.replicas"}) {
		t.Errorf("what the values say is not what is compared with: %q", said)
	}
}

// Whoever has an autoscaler of his own say how many replicas there are has changed nothing of the installation, and an upgrade leaves him the number.
func TestTheNumberOfReplicasIsAnAutoscalersToSay(t *testing.T) {
	of := func(kind, name string, labels map[string]string) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "scaler", Labels: labels},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: name}}}
	}
	drifted := []string{"change lateen-system/deployment/lateen-control spec.replicas"}
	for name, x := range map[string]struct {
		scaler   *autoscalingv2.HorizontalPodAutoscaler
		replicas int64
		want     []string
	}{
		"one of this Deployment":             {of("Deployment", controlName, nil), 5, nil},
		"which has none":                     {of("Deployment", controlName, nil), 0, drifted},
		"one of another Deployment":          {of("Deployment", "other", nil), 5, drifted},
		"one of another kind":                {of("StatefulSet", controlName, nil), 5, drifted},
		"one of ours that is wanted no more": {of("Deployment", controlName, map[string]string{managedBy: lateen}), 5, drifted},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := installed(t)
			if _, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(DefaultNamespace).Create(t.Context(), x.scaler, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			o, err := c.objects().get(t.Context(), named("Deployment", DefaultNamespace, controlName))
			if err != nil {
				t.Fatal(err)
			}
			_ = unstructured.SetNestedField(o.Object, x.replicas, "spec", "replicas")
			c.put(t, o)
			if said, _ := drift(t, c, r); !slices.Equal(said, x.want) {
				t.Errorf("got %q, want %q", said, x.want)
			}
		})
	}
}

func scaled(t *testing.T, replicas int64) (c *Cluster, want, live *unstructured.Unstructured) {
	t.Helper()
	c, _ = installed(t)
	want, err := c.objects().get(t.Context(), named("Deployment", DefaultNamespace, controlName))
	if err != nil {
		t.Fatal(err)
	}
	live = want.DeepCopy()
	if err := unstructured.SetNestedField(live.Object, replicas, "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	c.put(t, live)
	if live, err = c.objects().get(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	return c, want, live
}

func anyOne(*unstructured.Unstructured) bool { return true }

// Who may not list autoscalers can still compare, and is told what is not known.
func TestAutoscalersThatMayNotBeListedAreSaid(t *testing.T) {
	c, want, live := scaled(t, 5)
	c.Client.(*fake.Clientset).PrependReactor("list", "horizontalpodautoscalers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resources["HorizontalPodAutoscaler"].GroupResource(), "", nil)
	})
	s, err := c.judge(t.Context(), want, live, anyOne)
	if err != nil || s.Action != Change || !slices.Equal(s.Fields, []string{"spec.replicas"}) || !strings.Contains(s.Why, "may not list horizontalpodautoscalers.autoscaling in "+DefaultNamespace) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestThePlanNamesTheAutoscalerThatDecides(t *testing.T) {
	c, want, live := scaled(t, 5)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "scaler"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: controlName}}}
	if _, err := c.Client.AutoscalingV2().HorizontalPodAutoscalers(DefaultNamespace).Create(t.Context(), scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := c.judge(t.Context(), want, live, anyOne)
	if err != nil || s.Action != Unchanged || !strings.Contains(s.Why, "stays at 5 replicas") || !strings.Contains(s.Why, "horizontalpodautoscaler/scaler decides") {
		t.Errorf("%+v, %v", s, err)
	}
}
