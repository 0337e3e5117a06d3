package rollout

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pods(specs ...string) []Pod {
	var out []Pod
	for i, s := range specs { // "hash:state", oldest first
		p := Pod{Name: fmt.Sprintf("p%d", i), Hash: s[:1], Created: epoch.Add(time.Duration(i) * time.Second)}
		switch s[2:] {
		case "ready":
			p.Ready = true
		case "ending":
			p.Terminating = true
		}
		out = append(out, p)
	}
	return out
}

func TestNext(t *testing.T) {
	rolling := func(n int) Wish { return Wish{Replicas: n, Hash: "b", MaxSurge: 1} }
	for name, tc := range map[string]struct {
		wish   Wish
		pods   []Pod
		create int
		delete []string
	}{
		"nothing there":                               {wish: rolling(2), create: 2},
		"all there":                                   {wish: rolling(2), pods: pods("b:ready", "b:ready")},
		"one is ending":                               {wish: rolling(2), pods: pods("b:ready", "b:ending"), create: 1},
		"scale down takes the youngest":               {wish: rolling(1), pods: pods("b:ready", "b:ready", "b:ready"), delete: []string{"p2", "p1"}},
		"scale down takes the unready first":          {wish: rolling(1), pods: pods("b:new", "b:ready"), delete: []string{"p0"}},
		"scale to zero":                               {wish: rolling(0), pods: pods("b:ready"), delete: []string{"p0"}},
		"an update starts with one more":              {wish: rolling(2), pods: pods("a:ready", "a:ready"), create: 1},
		"and waits for it":                            {wish: rolling(2), pods: pods("a:ready", "a:ready", "b:new")},
		"then ends an old one":                        {wish: rolling(2), pods: pods("a:ready", "a:ready", "b:ready"), delete: []string{"p1"}},
		"then makes the next":                         {wish: rolling(2), pods: pods("a:ready", "a:ending", "b:ready"), create: 1},
		"an old one that is not ready goes at once":   {wish: rolling(2), pods: pods("a:ready", "a:new"), create: 1, delete: []string{"p1"}},
		"recreate ends all old ones first":            {wish: Wish{Replicas: 2, Hash: "b", Recreate: true}, pods: pods("a:ready", "a:ready"), delete: []string{"p0", "p1"}},
		"recreate waits until they are gone":          {wish: Wish{Replicas: 2, Hash: "b", Recreate: true}, pods: pods("a:ending")},
		"recreate then makes all":                     {wish: Wish{Replicas: 2, Hash: "b", Recreate: true}, create: 2},
		"an own pod that is ending does not hold one": {wish: Wish{Replicas: 1, Hash: "b", Recreate: true}, pods: pods("b:ending"), create: 1},
	} {
		got := Next(tc.wish, tc.pods)
		slices.Sort(got.Delete)
		slices.Sort(tc.delete)
		if got.Create != tc.create || !slices.Equal(got.Delete, tc.delete) {
			t.Errorf("%s: got %+v, want create %d delete %v", name, got, tc.create, tc.delete)
		}
	}
}

func TestWishOf(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	v := func(x intstr.IntOrString) *intstr.IntOrString { return &x }
	for name, tc := range map[string]struct {
		spec appsv1.DeploymentSpec
		want Wish
	}{
		"defaults":         {appsv1.DeploymentSpec{}, Wish{Replicas: 1, MaxSurge: 1}},
		"percentages":      {appsv1.DeploymentSpec{Replicas: n(10)}, Wish{Replicas: 10, MaxSurge: 3, MaxUnavailable: 2}},
		"never both zero":  {appsv1.DeploymentSpec{Replicas: n(2), Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: v(intstr.FromInt32(0)), MaxUnavailable: v(intstr.FromInt32(0))}}}, Wish{Replicas: 2, MaxSurge: 1}},
		"its own":          {appsv1.DeploymentSpec{Replicas: n(4), Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: v(intstr.FromInt32(0)), MaxUnavailable: v(intstr.FromString("50%"))}}}, Wish{Replicas: 4, MaxUnavailable: 2}},
		"recreate":         {appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}, Wish{Replicas: 1, Recreate: true}},
		"negative is none": {appsv1.DeploymentSpec{Replicas: n(-3)}, Wish{MaxSurge: 1}},
	} {
		if got := WishOf(&appsv1.Deployment{Spec: tc.spec}, ""); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// A simulated Deployment under random events: pods become ready, lose readiness, end, the template and the number of
// replicas change. Whatever happens, the bounds hold at every step and the Deployment gets where it is to go.
func TestRolloutKeepsItsBoundsAndArrives(t *testing.T) {
	for seed := range int64(300) {
		rng := rand.New(rand.NewSource(seed))
		w := Wish{Replicas: 1 + rng.Intn(5), Hash: "a", MaxSurge: rng.Intn(3), MaxUnavailable: rng.Intn(3), Recreate: rng.Intn(5) == 0}
		if w.MaxSurge == 0 && w.MaxUnavailable == 0 {
			w.MaxSurge = 1
		}
		var now []Pod
		made := 0
		step := func() Steps {
			before := now
			s := Next(w, now)
			gone := map[string]bool{}
			for _, name := range s.Delete {
				if gone[name] {
					t.Fatalf("seed %d: %s is deleted twice", seed, name)
				}
				gone[name] = true
			}
			alive, oldReady, readyLeft, fresh := 0, false, 0, 0
			for i := range now {
				p := &now[i]
				if p.Terminating && gone[p.Name] {
					t.Fatalf("seed %d: %s is deleted though it is ending", seed, p.Name)
				}
				oldReady = oldReady || gone[p.Name] && p.Ready && p.Hash != w.Hash
				p.Terminating = p.Terminating || gone[p.Name]
				if !p.Terminating {
					alive++
					if p.Ready {
						readyLeft++
					}
					if p.Hash == w.Hash {
						fresh++
					}
				}
			}
			if s.Create > 0 && alive+s.Create > w.Replicas+w.MaxSurge {
				t.Fatalf("seed %d: %d pods, want at most %d+%d; %+v of %+v", seed, alive+s.Create, w.Replicas, w.MaxSurge, s, before)
			}
			if !w.Recreate && oldReady && readyLeft < w.Replicas-w.MaxUnavailable {
				t.Fatalf("seed %d: ends a ready old pod though only %d of %d-%d stay ready", seed, readyLeft, w.Replicas, w.MaxUnavailable)
			}
			for range s.Create {
				made++
				now = append(now, Pod{Name: fmt.Sprintf("p%d", made), Hash: w.Hash, Created: epoch.Add(time.Duration(made))})
			}
			return s
		}
		for range 60 {
			switch rng.Intn(8) {
			case 0:
				w.Hash = string(rune('a' + rng.Intn(3)))
			case 1:
				w.Replicas = rng.Intn(5)
			case 2, 3, 4:
				if len(now) > 0 {
					p := &now[rng.Intn(len(now))]
					p.Ready = !p.Ready && !p.Terminating
				}
			default:
				now = slices.DeleteFunc(now, func(p Pod) bool { return p.Terminating && rng.Intn(2) == 0 })
			}
			step()
		}
		// Now everything that is made becomes ready and what ends is gone: it must come to rest at the wish.
		for i := 0; ; i++ {
			if i > 100 {
				t.Fatalf("seed %d: does not arrive: %+v of %+v", seed, now, w)
			}
			now = slices.DeleteFunc(now, func(p Pod) bool { return p.Terminating })
			for j := range now {
				now[j].Ready = true
			}
			if s := step(); s.Create == 0 && len(s.Delete) == 0 {
				break
			}
		}
		if len(now) != w.Replicas || slices.ContainsFunc(now, func(p Pod) bool { return p.Hash != w.Hash }) {
			t.Fatalf("seed %d: rests at %+v, want %d of %s", seed, now, w.Replicas, w.Hash)
		}
	}
}
