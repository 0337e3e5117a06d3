package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSelectionAgreesWithMatchingPodByPod compares the index with the definition, over random changes.
func TestSelectionAgreesWithMatchingPodByPod(t *testing.T) {
	type selector struct {
		namespace string
		labels    map[string]string
	}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		x := NewSelection()
		pods := map[Key]map[string]string{}
		selectors := map[Key]selector{}
		randomLabels := func(pod bool) map[string]string {
			l := map[string]string{}
			for _, k := range []string{"app", "version", "tier"} {
				if rng.IntN(2) == 0 {
					l[k] = fmt.Sprint(rng.IntN(2))
				}
			}
			if rng.IntN(4) == 0 {
				l[perPod[rng.IntN(len(perPod))]] = fmt.Sprint(rng.IntN(3))
			}
			if !pod && len(l) == 0 && rng.IntN(2) == 0 {
				l["app"] = "0"
			}
			return l
		}
		for range 300 {
			ns := fmt.Sprint("ns", rng.IntN(2))
			switch rng.IntN(6) {
			case 0, 1:
				name := fmt.Sprint("pod", rng.IntN(10))
				labels := randomLabels(true)
				pods[PodKey(ns, name)] = labels
				x.Put(PodKey(ns, name), labels)
			case 2:
				name := fmt.Sprint("pod", rng.IntN(10))
				delete(pods, PodKey(ns, name))
				x.Delete(PodKey(ns, name))
			case 3, 4:
				where := ns
				if rng.IntN(4) == 0 {
					where = ""
				}
				owner := ServiceKey(where, fmt.Sprint("s", rng.IntN(6)))
				labels := randomLabels(false)
				selectors[owner] = selector{where, labels}
				x.PutSelector(owner, where, labels)
			case 5:
				owner := ServiceKey(ns, fmt.Sprint("s", rng.IntN(6)))
				delete(selectors, owner)
				x.DeleteSelector(owner, ns)
			}
			for pod, labels := range pods {
				var want []Key
				for owner, s := range selectors {
					if (s.namespace == "" || s.namespace == pod.Namespace) && chooses(s.labels, labels) {
						want = append(want, owner)
					}
				}
				slices.SortFunc(want, Key.Compare)
				if got := x.ChosenBy(pod); !slices.Equal(got, want) {
					t.Fatalf("seed %d: %s with %v is chosen by %v, want %v", seed, pod, labels, got, want)
				}
			}
			for _, s := range selectors {
				got := map[Key]bool{}
				x.Chosen(s.namespace, s.labels, func(k Key) {
					if got[k] {
						t.Fatalf("%s visited twice", k)
					}
					got[k] = true
				})
				want := map[Key]bool{}
				for pod, labels := range pods {
					if (s.namespace == "" || s.namespace == pod.Namespace) && chooses(s.labels, labels) {
						want[pod] = true
					}
				}
				if !maps.Equal(got, want) {
					t.Fatalf("seed %d: %v chooses %v, want %v", seed, s, got, want)
				}
			}
		}
	}
}

func TestReplicasOfOneTemplateAreOneLabelSet(t *testing.T) {
	x := NewSelection()
	for i := range 1000 {
		x.Put(PodKey("ns", fmt.Sprint("web-", i)), map[string]string{"app": "web", "apps.kubernetes.io/pod-index": fmt.Sprint(i)})
	}
	if n := len(x.namespaces["ns"].sets); n != 1 {
		t.Errorf("%d label sets for one template", n)
	}
}

func BenchmarkPoliciesTimesPods(b *testing.B) {
	x := NewSelection()
	for i := range 10000 {
		x.Put(PodKey("ns", fmt.Sprint("pod-", i)), map[string]string{"app": fmt.Sprint("app-", i%20)})
	}
	b.ReportAllocs()
	for b.Loop() {
		for p := range 500 {
			owner := Key{Group: SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "ns", Name: fmt.Sprint("p", p)}
			x.PutSelector(owner, "ns", map[string]string{"app": fmt.Sprint("app-", p%20)})
		}
		for i := range 10000 {
			if len(x.ChosenBy(PodKey("ns", fmt.Sprint("pod-", i)))) != 25 {
				b.Fatal("wrong selection")
			}
		}
	}
}
