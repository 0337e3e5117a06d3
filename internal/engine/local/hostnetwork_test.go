package local

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// A Deployment with a pod on every node, each with a port of the node's network, has no node for a new pod before it gives up an old
// one: who updates it is told how.
func TestAnUpdateThatItsOwnPodsBlockNamesItsFix(t *testing.T) {
	spec := corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 18080}}}}}
	web := model.Key{Kind: "Deployment", Namespace: "shop", Name: "web"}
	n := &node{name: "n1"}
	for name, tt := range map[string]struct {
		owner    model.Key
		hash     string
		stopping bool
		fix      bool
	}{
		"an update":                {web, "new", false, true},
		"one more":                 {web, "old", false, false},
		"an old one that is going": {web, "new", true, false},
		"another Deployment":       {model.Key{Kind: "Deployment", Namespace: "shop", Name: "api"}, "new", false, false},
		"a pod":                    {model.Key{Kind: "Pod", Namespace: "shop", Name: "web"}, "", false, false},
	} {
		r := &reconciler{state: newState([]*node{n}, nil)}
		r.state.pods = []*pod{{id: podIdentity{namespace: "shop", name: "web-old-1", node: n, owner: web, hash: "old", spec: spec}, stopping: tt.stopping}}
		got := r.cannotHost(n, &spec, tt.owner, tt.hash)
		if !strings.HasPrefix(got, "port 18080 of its network belongs to pod shop/web-old-1") || strings.Contains(got, "maxSurge: 0, maxUnavailable: 1") != tt.fix {
			t.Errorf("%s: %q", name, got)
		}
	}
}
