package cli

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// expected are connections as those of this mesh will look, so that columns are wide enough before any is seen: one from and to each
// pod and one to each port of a service, of a namespace or of all of them. home is the namespace whose name may be left out, empty if there
// is none. What the engine does not tell is left out: columns are settled all the same.
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
	pods := map[string]bool{}
	ask("Pod", func(o api.Object) {
		var pod corev1.Pod
		if json.Unmarshal(o.Raw, &pod) != nil {
			return
		}
		pods[o.Key.Namespace] = true
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

// homeAmong is the namespace whose name may be left out among these, which have pods. It is the only one, or the current one: commands
// take a name without a namespace for one of that. It is empty if there is no such namespace.
func homeAmong(current string, pods map[string]bool) string {
	if pods[current] {
		return current
	}
	if len(pods) == 1 {
		for only := range pods {
			return only
		}
	}
	return ""
}
