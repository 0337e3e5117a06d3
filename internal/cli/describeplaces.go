package cli

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// namespace says what is in a namespace.
func (s *surroundings) namespace(object api.Object) (*printer.NamespaceDescription, error) {
	d := &printer.NamespaceDescription{Mode: labelsIn(object)[wellknown.DataplaneMode]}
	pods, err := s.in("Pod", object.Key.Name)
	if err != nil {
		return nil, err
	}
	if d.Pods, err = summaries(pods); err != nil {
		return nil, err
	}
	for _, kind := range []string{"Deployment", "Service", "ServiceAccount", "AuthorizationPolicy", "PeerAuthentication", "ServiceEntry", "WorkloadEntry", "Gateway"} {
		objects, err := s.in(kind, object.Key.Name)
		if err != nil {
			return nil, err
		}
		if len(objects) == 0 {
			continue
		}
		held := printer.Held{Kind: kind}
		for _, o := range objects {
			held.Names = append(held.Names, o.Key.Name)
		}
		slices.Sort(held.Names)
		d.Objects = append(d.Objects, held)
	}
	return d, nil
}

// node says what runs on a node.
func (s *surroundings) node(object api.Object) (*printer.NodeDescription, error) {
	node, err := decode[corev1.Node](object)
	if err != nil {
		return nil, err
	}
	d := &printer.NodeDescription{PodCIDR: node.Spec.PodCIDR}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			d.Addresses = append(d.Addresses, a.Address)
		}
	}
	for _, c := range node.Status.Conditions {
		d.Ready = d.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	status, err := s.status()
	if err != nil {
		return nil, err
	}
	for _, n := range status.Nodes {
		if n.Name == node.Name {
			d.Agent = partState(n.Agent.Ready, n.Agent.Restarts, n.Agent.LastExit, n.Agent.Error)
			d.Proxy = partState(n.Proxy.Ready, n.Proxy.Restarts, n.Proxy.LastExit, n.Proxy.Error)
			d.AckedGeneration, d.Generation = n.Proxy.AckedGeneration, status.Control.Generation
		}
	}
	pods, err := s.all("Pod")
	if err != nil {
		return nil, err
	}
	var here []api.Object
	for _, o := range pods {
		pod, err := decode[corev1.Pod](o)
		if err != nil {
			return nil, err
		}
		if pod.Spec.NodeName == node.Name {
			here = append(here, o)
		}
	}
	d.Pods, err = summaries(here)
	return d, err
}

// partState is how a process of the mesh is, in words.
func partState(ready bool, restarts int, lastExit, problem string) string {
	text := "not ready"
	if ready {
		text = "ready"
	}
	if restarts > 0 {
		text += fmt.Sprintf(", %d restarts", restarts)
		if lastExit != "" {
			text += ", the last time because it " + lastExit
		}
	}
	if problem != "" {
		text += ": " + problem
	}
	return text
}
