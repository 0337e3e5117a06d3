package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// expected are connections as those of this mesh will look, so that columns are wide enough before any is seen: one from and to each
// pod and one to each port of a service, of a namespace or of all of them. home is the namespace whose name may be left out, empty if no
// pod is known. What the engine does not tell is left out: columns are settled all the same.
func (cmds effects) expected(ctx context.Context, namespace string, nodes []string) (home string, expected []api.Connection) {
	for _, node := range nodes {
		expected = append(expected, api.Connection{Node: node, Direction: "outbound"})
	}
	ask := func(kind string, each func(api.Object)) {
		list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: kind, Namespace: namespace, AllNamespaces: namespace == ""})
		if err != nil {
			return
		}
		for _, o := range list.Items {
			// The mesh's own parts are never captured.
			if o.Key.Namespace == "istio-system" && namespace == "" {
				continue
			}
			each(o)
		}
	}
	pods := map[string]int{}
	ask("Pod", func(o api.Object) {
		var pod corev1.Pod
		if json.Unmarshal(o.Raw, &pod) != nil {
			return
		}
		pods[o.Key.Namespace]++
		account := pod.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		end := api.ConnectionEnd{Namespace: o.Key.Namespace, Workload: o.Key.Name, Identity: fmt.Sprintf("spiffe://td/ns/%s/sa/%s", o.Key.Namespace, account)}
		served := end
		served.Address = ":8080"
		expected = append(expected, api.Connection{Direction: "inbound", Source: end, Destination: served, Tunnelled: true})
	})
	ask("Service", func(o api.Object) {
		var service corev1.Service
		if json.Unmarshal(o.Raw, &service) != nil {
			return
		}
		for _, port := range service.Spec.Ports {
			expected = append(expected, api.Connection{Direction: "outbound", Service: o.Key.Name + "." + o.Key.Namespace + ".svc.", Wanted: fmt.Sprintf(":%d", port.Port)})
		}
	})
	if namespace != "" {
		return namespace, expected
	}
	return homeAmong(cmds.app.namespace, pods), expected
}

// homeAmong is the namespace whose name may be left out among these, which have so many pods: the current one if it has any, so that a
// name can be given to another command as it stands. Otherwise it is the one with most pods.
func homeAmong(current string, pods map[string]int) (home string) {
	if pods[current] > 0 {
		return current
	}
	for _, namespace := range slices.Sorted(maps.Keys(pods)) {
		if pods[namespace] > pods[home] {
			home = namespace
		}
	}
	return home
}
