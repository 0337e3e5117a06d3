package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// unsettled says which of the pods, by namespace and name, are not yet in the mesh as their labels say, and which node proxies do not
// know so yet. proxies is how many node proxies know everything. Only a thorough look asks the control plane and its clients, which costs more.
//
// A connection is meshed if its source's traffic is captured and its source's proxy knows that the destination's is. The
// capture is the agents' to tell; what the proxies know is what the control plane has told them and they acknowledged.
func unsettled(ctx context.Context, client *api.Client, wanted map[string]bool, thorough bool) (waiting []string, proxies int, err error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, 0, err
	}
	pods := slices.DeleteFunc(slices.Clone(status.Pods), func(p api.PodState) bool { return !wanted[p.Namespace+"/"+p.Name] })
	for _, p := range pods {
		if why := uncaptured(p); why != "" {
			waiting = append(waiting, "pod/"+p.Name+" ("+why+")")
		}
	}
	if len(waiting) > 0 || !thorough {
		return waiting, len(status.Nodes), nil
	}
	declared, err := declaredMeshed(ctx, client)
	if unreachable := (*api.Error)(nil); errors.As(err, &unreachable) {
		return []string{"the control plane (" + unreachable.Message + ")"}, 0, nil // it may be starting again
	} else if err != nil {
		return nil, 0, err
	}
	for _, p := range pods {
		if d := declared[p.Namespace+"/"+p.Name]; d.meshed != p.Enrolled && !d.native {
			waiting = append(waiting, "the control plane to hear of pod/"+p.Name)
		}
	}
	// Anew, and after the above: what the control plane has declared is in the generation that it names from now on.
	if status, err = client.Status(ctx); err != nil {
		return nil, 0, err
	}
	// A control plane that fails names no clients: everybody would seem to have acknowledged everything.
	if why := status.Control.Error; !status.Control.Ready || why != "" {
		waiting = append(waiting, strings.TrimSuffix("the control plane ("+why+")", " ()"))
	}
	for _, n := range status.Nodes {
		if n.Proxy.AckedGeneration < status.Control.Generation {
			waiting = append(waiting, fmt.Sprintf("the proxy of node %s (generation %d of %d)", n.Name, n.Proxy.AckedGeneration, status.Control.Generation))
		}
	}
	return waiting, len(status.Nodes), nil
}

// uncaptured says what is missing until a pod's own traffic is treated as its labels ask; empty if nothing is.
func uncaptured(p api.PodState) string {
	why := ""
	switch {
	case p.Enrolled && !(p.Redirection && p.Mesh == "captured"):
		why = "not in the mesh yet"
	case !p.Enrolled && p.Mesh == "releasing":
		// New connections are plain by now. The node proxy keeps the pod until other proxies know and its connections have ended.
		why = "leaving the mesh"
	case !p.Enrolled && (p.Redirection || p.Mesh == "captured" || p.Mesh == "pending"):
		why = "not out of the mesh yet"
	default:
		return ""
	}
	if p.MeshReason != "" {
		why += ": " + p.MeshReason
	}
	return why
}

// declaration is what the control plane says of a pod.
type declaration struct {
	meshed bool // its proxies reach it through the mesh
	native bool // because it speaks the mesh's protocol itself, whatever is captured
}

// declaredMeshed is which pods the control plane has its proxies reach through the mesh, by namespace and name.
func declaredMeshed(ctx context.Context, client *api.Client) (map[string]declaration, error) {
	page, err := client.ControlDebug(ctx, "debug/resources?type=Address")
	if err != nil {
		return nil, err
	}
	var resources []struct {
		Content struct {
			Workload struct {
				Namespace      string `json:"namespace"`
				Name           string `json:"name"`
				TunnelProtocol string `json:"tunnelProtocol"`
				NativeTunnel   bool   `json:"nativeTunnel"`
			} `json:"workload"`
		} `json:"content"`
	}
	if err := json.Unmarshal(page, &resources); err != nil {
		return nil, fmt.Errorf("read what the control plane declares: %w", err)
	}
	declared := map[string]declaration{}
	for _, r := range resources {
		if w := r.Content.Workload; w.Name != "" {
			declared[w.Namespace+"/"+w.Name] = declaration{w.TunnelProtocol == "HBONE", w.NativeTunnel}
		}
	}
	return declared, nil
}
