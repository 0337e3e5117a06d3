package status

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/analyse"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// crowd are sources with many pods and a count of the analyses that pages ask for.
func crowd(pods int) (s Sources, analyses *int) {
	s, analyses = newSources(), new(int)
	var changes []model.Change
	for i := range pods {
		key := model.PodKey("shop", fmt.Sprintf("web-%d", i))
		changes = append(changes, model.Change{Key: key, Object: &model.Object{Key: key, JSON: []byte("{}")}})
	}
	s.Store.Apply(changes)
	s.Analyse = func(entries []model.Entry) []analyse.Finding {
		*analyses++
		return nil
	}
	return s, analyses
}

// An analysis reads every pod, and pods come and go all the time.
func TestOnlyPagesThatShowFindingsAskForThem(t *testing.T) {
	for query, want := range map[string]int{"": 1, "?kind=Pod": 0, "?kind=service": 0, "?kind=AuthorizationPolicy": 1, "?kind=peerauthentication": 1, "?kind=Namespace": 1, "?namespace=shop": 1} {
		s, analyses := crowd(1)
		if code, body := get(Handler(s), "/debug/objects"+query); code != 200 || *analyses != want || !strings.HasPrefix(body, "[") {
			t.Errorf("%q: %d analyses, want %d; %d %s", query, *analyses, want, code, body)
		}
	}
}

// BenchmarkPodsPage is the page of all pods after a change.
func BenchmarkPodsPage(b *testing.B) {
	const pods = 2000
	var text strings.Builder
	text.WriteString("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}}\n")
	for i := range pods {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Pod, metadata: {name: web-%d, namespace: shop, labels: {app: web-%d}}, spec: {containers: [{name: c}]}}\n", i, i%50)
	}
	for i := range 50 {
		fmt.Fprintf(&text, "---\n{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: p%d, namespace: shop}, spec: {selector: {matchLabels: {app: web-%d}}, rules: [{from: [{source: {namespaces: [nowhere]}}]}]}}\n", i, i)
	}
	objects, problems := files.Decode("bench", []byte(text.String()))
	for _, p := range problems {
		if p.Severity == files.Refused {
			b.Fatal(p)
		}
	}
	s := newSources()
	var changes []model.Change
	for i := range objects {
		changes = append(changes, model.Change{Key: objects[i].Key, Object: &objects[i]})
	}
	s.Store.Apply(changes)
	s.Analyse = func(entries []model.Entry) []analyse.Finding {
		return analyse.Analyse(analyse.Read(translate.Mesh{TrustDomain: "cluster.local", RootNamespace: "istio-system"}, entries))
	}
	for b.Loop() {
		s.found = &findings{}
		if got := s.objects(b.Context(), question{kind: "Pod"}); len(got) != pods {
			b.Fatalf("%d objects", len(got))
		}
	}
}
