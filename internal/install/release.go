package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Annotations between the installer and the agents: on their DaemonSet, that all pods are to be released and the node restored; on an
// agent's pod, that it has done so.
const (
	uninstallAnnotation   = wellknown.Uninstall
	uninstalledAnnotation = wellknown.Uninstalled
)

// Names of the mesh's own workloads.
const (
	agentName   = "lateen-agent"
	controlName = "lateen-control"
)

// nodeAgents tells what the agents do on the nodes, and which pods they have captured.
type nodeAgents struct {
	client kubernetes.Interface
	server apiServer
}

func (c *Cluster) nodeAgents() nodeAgents {
	return nodeAgents{client: c.Client, server: apiServer(c.Host)}
}

// captured are the pods that are in the mesh. The annotation alone proves nothing, since whoever makes a pod can write it: no agent is asked to
// capture, or to release, a pod that is on no node or on its node's own network.
func (c nodeAgents) captured(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !isCaptured(&p) || ended(&p) }), nil
}

func isCaptured(p *corev1.Pod) bool {
	return p.Annotations[wellknown.Redirection] == "enabled" && p.Spec.NodeName != "" && !p.Spec.HostNetwork
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// release asks the agents to release all pods and restore their nodes, and waits until they have.
func (r *Removal) release(ctx context.Context) error {
	c, o := r.cluster, r.options
	daemons := c.Client.AppsV1().DaemonSets(r.record.Namespace)
	if _, err := daemons.Get(ctx, agentName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil // Prepare has seen to it that no pod is left without an agent
	} else if err != nil {
		return c.explain(err)
	}
	o.started("release", "releasing %s", pods(r.Captured))
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{uninstallAnnotation: "true"}}})
	if err != nil {
		return err
	}
	if _, err := daemons.Patch(ctx, agentName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return c.explain(err)
	}
	var now standing
	shown := ""
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		var err error
		if now, err = c.nodeAgents().standing(ctx, r.record.Namespace, o.WithoutNodes); err != nil {
			return false, err
		}
		if s := now.String(); s != shown && s != "" {
			o.goesOn("release", "releasing pods: waiting for %s", s)
			shown = s
		}
		return now.done(), nil
	})
	if err != nil {
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
			return &api.Error{Code: 408, Message: fmt.Sprintf("the pods are not all released (%s): still %s", err, now),
				Fix: fmt.Sprintf("see what keeps the agents with kubectl logs -n %s -l app=lateen-agent, and repeat the command; nothing was removed yet, and lateen upgrade takes the removal back", r.record.Namespace)}
		}
		return err
	}
	if len(now.disowned) > 0 {
		o.goesOn("release", "annotated as captured, though the agent of the node has left it: %s", few(now.disowned))
	}
	if len(now.stays) > 0 {
		o.goesOn("release", "networks of pods that could not be looked at or changed; a pod that was captured there has no network until it is deleted: %s", few(now.stays))
	}
	o.done("release", "%s released, nodes restored", pods(r.Captured))
	return nil
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// standing is how far the agents are.
type standing struct {
	// working are nodes whose agents have not released all pods yet.
	working []string
	// lost are nodes on which nobody can be asked to, and why.
	lost map[string]string
	// alone are the nodes among them of which nothing but the annotation of a pod says that the mesh was ever there.
	alone []string
	// disowned are pods that have the annotation where the agent says that it has released all.
	disowned []string
	// stays is what agents could not take off their nodes' pods.
	stays []string
}

func (s standing) done() bool { return len(s.working) == 0 && len(s.lost) == 0 }

// String names what is waited for.
func (s standing) String() string {
	var out []string
	for _, node := range s.working {
		out = append(out, "the agent of node "+node)
	}
	return few(append(out, s.losses()...))
}

func (s standing) losses() []string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(s.lost)) {
		out = append(out, "node "+node+", which "+s.lost[node])
	}
	return out
}

// few is a list, cut where nobody reads on.
func few(items []string) string {
	const most = 6
	if len(items) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
	}
	return strings.Join(items, ", ")
}

// standing asks how far the agents are, but for those of some nodes. A node that the cluster does not have any more has no pods.
func (c nodeAgents) standing(ctx context.Context, namespace string, without []string) (standing, error) {
	s := standing{lost: map[string]string{}}
	down, err := c.down(ctx)
	if err != nil {
		return s, err
	}
	agents, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + agentName})
	if err != nil {
		return s, c.server.explain(err)
	}
	captured, err := c.captured(ctx)
	if err != nil {
		return s, err
	}
	matters := func(node string) bool {
		_, there := down[node]
		return there && !slices.Contains(without, node)
	}
	left := map[string]bool{}
	for i := range agents.Items {
		p := &agents.Items[i]
		node := p.Spec.NodeName
		switch {
		case !matters(node) || ended(p):
		case strings.HasPrefix(p.Annotations[uninstalledAnnotation], "true"):
			left[node] = true
			if _, but, there := strings.Cut(p.Annotations[uninstalledAnnotation], ", but for "); there {
				s.stays = append(s.stays, "on node "+node+" "+but)
			}
		case down[node]:
			s.lost[node] = "is down"
		case !slices.Contains(s.working, node):
			s.working = append(s.working, node)
		}
	}
	slices.Sort(s.working)
	for i := range captured {
		p := &captured[i]
		node := p.Spec.NodeName
		switch {
		case !matters(node) || s.lost[node] != "":
		case slices.Contains(s.working, node):
		case left[node]:
			s.disowned = append(s.disowned, p.Namespace+"/"+p.Name)
		case down[node]:
			s.lost[node] = "is down"
		default:
			s.lost[node] = fmt.Sprintf("has pods that are annotated as captured, such as %s/%s, and no agent", p.Namespace, p.Name)
			s.alone = append(s.alone, node)
		}
	}
	return s, nil
}

func (c nodeAgents) nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.server.explain(err)
	}
	return list.Items, nil
}

// down says of each node whether it is.
func (c nodeAgents) down(ctx context.Context) (map[string]bool, error) {
	nodes, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	down := map[string]bool{}
	for _, n := range nodes {
		down[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(x corev1.NodeCondition) bool {
			return x.Type == corev1.NodeReady && x.Status == corev1.ConditionTrue
		})
	}
	return down, nil
}

// reachable refuses to begin where nodes would stay behind with pods that are captured and a plugin that waits for an agent: an agent that
// comes back after its DaemonSet and its rights are gone cannot tell that from an API server that is away, and leaves all as it is.
func (r *Removal) reachable(ctx context.Context) error {
	if r.record.State == stateUninstalling {
		_, err := r.cluster.Client.AppsV1().DaemonSets(r.record.Namespace).Get(ctx, agentName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // it is deleted only when all agents have said that they have left
		} else if err != nil {
			return r.cluster.explain(err)
		}
	}
	now, err := r.cluster.nodeAgents().standing(ctx, r.record.Namespace, r.options.WithoutNodes)
	if err != nil || len(now.lost) == 0 {
		return err
	}
	names := slices.Sorted(maps.Keys(now.lost))
	foreign := ""
	if len(now.alone) > 0 {
		// Whoever makes a pod can annotate it.
		foreign = fmt.Sprintf("if no agent ever was on node %s, the pods there were never captured, and only say so: %s; otherwise ", strings.Join(now.alone, ", "), disown(now.alone))
	}
	return &api.Error{Code: 409, Message: fmt.Sprintf("nobody can take the mesh off %s: its pods would stay captured without a proxy, and new ones would not start", few(now.losses())),
		Fix: foreign + fmt.Sprintf("bring the node back (an agent, with lateen upgrade) and repeat the command, or take it out of the cluster if it is gone for good (kubectl delete node %s); "+
			"or go on with --without-nodes=%s, which then names what to run for each when it is back", names[0], strings.Join(names, ","))}
}

// disown is the command that takes from pods what says that they were captured.
func disown(nodes []string) string {
	nodes = slices.Sorted(slices.Values(nodes))
	const annotate = "kubectl annotate pods -A --field-selector=spec.nodeName=%s %s-"
	if len(nodes) == 1 {
		return fmt.Sprintf(annotate, nodes[0], wellknown.Redirection)
	}
	return fmt.Sprintf("for node in %s; do "+annotate+"; done", strings.Join(nodes, " "), "$node", wellknown.Redirection)
}

// ByHand is what takes the mesh off the nodes that the removal went on without, once they are back.
func (r *Removal) ByHand() []string {
	conf, bin := folder(r.record.Values, "confDir", "/etc/cni/net.d"), folder(r.record.Values, "binDir", "/opt/cni/bin")
	var out []string
	for _, node := range r.options.WithoutNodes {
		out = append(out, fmt.Sprintf("kubectl debug node/%s --profile=sysadmin --image=%s -- /usr/local/bin/lateen-agent uninstall-cni --cni-conf-dir=/host%s --cni-bin-dir=/host%s --run-dir=/host/run/lateen --netns-dir=/host/run/netns",
			node, r.image, conf, bin))
	}
	return out
}

// folder is a value of the installation's about the nodes' CNI.
func folder(values map[string]any, name, otherwise string) string {
	if cni, ok := values["cni"].(map[string]any); ok {
		if dir, ok := cni[name].(string); ok && dir != "" {
			return dir
		}
	}
	return otherwise
}
