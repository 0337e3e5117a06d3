package compile

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// BenchmarkPodChange measures one changed pod in a mesh of 1000 services, 10,000 pods and 100 policies, and what that mesh keeps in memory.
func BenchmarkPodChange(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := newPlane(b)
	var changes []model.Change
	add := func(text string) {
		for _, o := range decode(b, text) {
			changes = append(changes, model.Change{Key: o.Key, Object: &o})
		}
	}
	for s := range 1000 {
		ns := fmt.Sprint("ns", s%20)
		add(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: %s}\nspec: {clusterIP: 10.96.%d.%d, selector: {app: app%d}, ports: [{port: 80}]}\n", s, ns, s/250, s%250+1, s))
		for i := range 10 {
			add(pod(ns, fmt.Sprintf("p%d-%d", s, i), fmt.Sprintf("10.%d.%d.%d", 1+i, s/250, s%250+1), fmt.Sprint("app", s)))
		}
		if s%10 == 0 {
			add(authorization(ns, fmt.Sprint("a", s), fmt.Sprintf("selector: {matchLabels: {app: app%d}}", s)))
		}
	}
	p.Apply(changes)
	runtime.GC()
	runtime.ReadMemStats(&after)
	cursor := p.log.Open(resourcekind.Address)
	defer cursor.Close()
	object := *changes[1].Object
	original := object.Value.(*corev1.Pod)
	serial := 0
	b.ReportAllocs()
	for b.Loop() {
		serial++
		changed := original.DeepCopy()
		changed.Status.PodIP = fmt.Sprintf("10.200.%d.%d", serial/250%250, serial%250)
		next := object
		next.Value = changed
		p.Apply([]model.Change{{Key: object.Key, Object: &next}})
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-kept")
}

// BenchmarkSettle measures one look at 1000 services that ask for a waypoint of which one proxy has acknowledged and another one lags.
func BenchmarkSettle(b *testing.B) {
	p := newBindingPlane(b, NewAssignments())
	var services strings.Builder
	for s := range 1000 {
		fmt.Fprintf(&services, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 10.97.%d.%d, ports: [{port: 80}]}\n---\n", s, s/250, s%250+1)
	}
	p.put(services.String() + waypointOf("wp", "10.96.0.9"))
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n")
	proxies := []GatewayProxy{p.proxy("wp", p.log.Generation()), p.proxy("wp", 0)}
	b.ReportAllocs()
	for b.Loop() {
		if !p.settle(proxies...) {
			b.Fatal("nothing is waited for")
		}
	}
}
