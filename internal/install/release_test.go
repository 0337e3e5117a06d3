package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func agentPod(node, restored string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "lateen-agent-" + node, UID: types.UID("agent-" + node), Labels: map[string]string{"app": "lateen-agent"},
		Annotations: map[string]string{uninstalledAnnotation: restored}}, Spec: corev1.PodSpec{NodeName: node}}
}

func clusterNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func capturedPod(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-" + node, Annotations: map[string]string{"ambient.istio.io/redirection": "enabled"}}, Spec: corev1.PodSpec{NodeName: node}}
}

func changed(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(p)
	return p
}

func TestWhatIsWaitedForBeforeTheMeshGoes(t *testing.T) {
	for _, x := range []struct {
		name    string
		without []string
		objects []runtime.Object
		want    string // working | lost | disowned
	}{
		{"all restored", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true")}, "[] [] []"},
		{"an agent is at work", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", ""), capturedPod("n1")}, "[n1] [] []"},
		{"all but what cannot be", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true, but for cni-1: it is kept")}, "[] [] []"},
		{"whoever makes a pod can write the annotation; the agent's word counts", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true"), capturedPod("n1")}, "[] [] [default/web-n1]"},
		{"a pod on no node", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true"), capturedPod("")}, "[] [] []"},
		{"a pod on its node's network", nil, []runtime.Object{clusterNode("n1", "True"), changed(capturedPod("n1"), func(p *corev1.Pod) { p.Spec.HostNetwork = true })}, "[] [] []"},
		{"a pod that has ended", nil, []runtime.Object{clusterNode("n1", "True"), changed(capturedPod("n1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, "[] [] []"},
		{"a node is down", nil, []runtime.Object{clusterNode("n1", "Unknown"), agentPod("n1", ""), capturedPod("n1")}, "[] [node n1, which is down] []"},
		{"and was left before", nil, []runtime.Object{clusterNode("n1", "Unknown"), agentPod("n1", "true")}, "[] [] []"},
		{"captured pods without an agent", nil, []runtime.Object{clusterNode("n1", "True"), capturedPod("n1")}, "[] [node n1, which has pods that are annotated as captured, such as default/web-n1, and no agent] []"},
		{"which somebody has named", []string{"n1"}, []runtime.Object{clusterNode("n1", "True"), capturedPod("n1")}, "[] [] []"},
		{"as well as one that is down", []string{"n1"}, []runtime.Object{clusterNode("n1", "False"), agentPod("n1", ""), clusterNode("n2", "True"), agentPod("n2", "")}, "[n2] [] []"},
		{"a node that the cluster has no more", nil, []runtime.Object{agentPod("n1", ""), capturedPod("n1")}, "[] [] []"},
		{"an agent that was evicted", nil, []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true"), changed(agentPod("n1", ""), func(p *corev1.Pod) { p.Name, p.Status.Phase = "evicted", corev1.PodFailed })}, "[] [] []"},
	} {
		s, err := cluster(t, x.objects...).nodeAgents().standing(t.Context(), DefaultNamespace, x.without)
		if got := fmt.Sprintf("%v %v %v", s.working, s.losses(), s.disowned); err != nil || got != x.want {
			t.Errorf("%s: %s, %v", x.name, got, err)
		}
	}
}

func TestNothingIsRemovedWhileAgentsAreAtWork(t *testing.T) {
	c := cluster(t, clusterNode("n1", "True"), agentPod("n1", ""), daemonSet(DefaultNamespace, "lateen-agent", nil), capturedPod("n1"))
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	// It comes as far as the agents within it, however busy the machine.
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("not done after 5s"))
	defer cancel()
	if e := said(t, r.Run(ctx)); !strings.Contains(e.Message, "the agent of node n1") || !strings.Contains(e.Fix, "nothing was removed yet") {
		t.Error(e)
	}
	d, err := c.Client.AppsV1().DaemonSets(DefaultNamespace).Get(t.Context(), "lateen-agent", metav1.GetOptions{})
	if err != nil || d.Annotations[uninstallAnnotation] != "true" || d.Spec.Template.Annotations[uninstallAnnotation] != "" {
		t.Errorf("the agents were not asked on their DaemonSet alone: %v %v", d.Annotations, err)
	}
	if after, err := c.Find(t.Context()); err != nil || after.State != stateUninstalling {
		t.Errorf("%+v %v", after, err)
	}
}

func TestANodeThatIsDownIsNotLeftBehindUnsaid(t *testing.T) {
	set := daemonSet(DefaultNamespace, "lateen-agent", map[string]string{"app": "lateen-agent"})
	set.Spec.Template.Spec.Containers = []corev1.Container{{Image: "reg/agent:1"}}
	objects := []runtime.Object{clusterNode("n1", "True"), agentPod("n1", "true"), clusterNode("n2", "Unknown"), agentPod("n2", ""), set}
	c := cluster(t, objects...)
	values := map[string]any{"cni": map[string]any{"confDir": "/var/lib/cni/net.d"}}
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled, Values: values})
	_, err := c.PrepareRemoval(t.Context(), options(), false)
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "node n2, which is down") || !strings.Contains(e.Fix, "--without-nodes=n2") || !strings.Contains(e.Fix, "kubectl delete node n2") {
		t.Error(e)
	}
	if d, err := c.Client.AppsV1().DaemonSets(DefaultNamespace).Get(t.Context(), "lateen-agent", metav1.GetOptions{}); err != nil || d.Annotations[uninstallAnnotation] != "" {
		t.Errorf("agents were told to leave all the same: %v %v", d.Annotations, err)
	}
	o := options()
	o.WithoutNodes = []string{"n2"}
	r, err := c.PrepareRemoval(t.Context(), o, false)
	if err != nil {
		t.Fatal(err)
	}
	hands := r.ByHand()
	if len(hands) != 1 || !strings.Contains(hands[0], "node/n2 ") || !strings.Contains(hands[0], "--image=reg/agent:1 ") || !strings.Contains(hands[0], "uninstall-cni --cni-conf-dir=/host/var/lib/cni/net.d ") {
		t.Error(hands)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Find(t.Context()); r != nil || err != nil {
		t.Errorf("%+v %v", r, err)
	}
}

// Whoever makes a pod can annotate it: what to do where that is all that holds a removal up is said.
func TestAnAnnotationAloneCanBeTakenAway(t *testing.T) {
	c := cluster(t, clusterNode("n1", "True"), agentPod("n1", "true"), clusterNode("virtual", "True"), capturedPod("virtual"))
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	_, err := c.PrepareRemoval(t.Context(), options(), false)
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Fix, "if no agent ever was on node virtual") || !strings.Contains(e.Fix, ": "+disown([]string{"virtual"})+"; otherwise") ||
		!strings.Contains(e.Fix, "--without-nodes=virtual") {
		t.Error(e)
	}
	if _, err := c.Client.CoreV1().Pods("default").Patch(t.Context(), "web-virtual", types.MergePatchType, []byte(`{"metadata":{"annotations":{"ambient.istio.io/redirection":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil || len(r.ByHand()) != 0 {
		t.Errorf("%v %v", r, err)
	}
	// A node that is down is another matter.
	c = cluster(t, clusterNode("n2", "Unknown"), agentPod("n2", ""))
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	_, err = c.PrepareRemoval(t.Context(), options(), false)
	if e := said(t, err); strings.Contains(e.Fix, "kubectl annotate") {
		t.Error(e)
	}
}

// An authority that is gone while its roots are still read is one that nobody can go on with.
func TestTheAuthorityGoesLast(t *testing.T) {
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: rootCertificate, Labels: map[string]string{"app.kubernetes.io/name": lateen}}}
	c := cluster(t, root)
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	c.put(t, named("Secret", DefaultNamespace, "lateen-ca"))
	c.put(t, named("ConfigMap", "shop", rootCertificate))
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, a := range c.Dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
		if d, ok := a.(clienttesting.DeleteAction); ok {
			gone = append(gone, d.GetNamespace()+"/"+d.GetName())
		}
	}
	at := func(name string) int { return slices.Index(gone, name) }
	if at("shop/"+rootCertificate) < 0 || at("shop/"+rootCertificate) > at(DefaultNamespace+"/lateen-ca") {
		t.Errorf("removed in the order %v", gone)
	}
}

// Kubernetes cannot end pods on a node that is down, and a namespace waits for all its pods.
func TestPodsOnNodesThatAreDownAreTakenOffTheList(t *testing.T) {
	c := cluster(t, clusterNode("n1", "True"), clusterNode("n2", "Unknown"), agentPod("n2", ""))
	r := &Removal{cluster: c, options: options(), record: &Record{Namespace: DefaultNamespace}}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := r.ended(ctx, Step{Kind: "DaemonSet", Namespace: DefaultNamespace, Name: "lateen-agent"}); err != nil {
		t.Error(err)
	}
	c = cluster(t, clusterNode("n1", "True"), agentPod("n1", ""))
	r.cluster = c
	brief, end := context.WithTimeoutCause(t.Context(), time.Second, errors.New("not done"))
	defer end()
	if err := r.ended(brief, Step{Kind: "DaemonSet", Namespace: DefaultNamespace, Name: "lateen-agent"}); err == nil {
		t.Error("a pod on a node that runs was not waited for")
	}
	if _, err := c.Client.CoreV1().Pods(DefaultNamespace).Get(t.Context(), "lateen-agent-n1", metav1.GetOptions{}); err != nil {
		t.Error("it was forced off the list", err)
	}
}

func TestCapturedPodsWithoutAnyAgentKeepTheMesh(t *testing.T) {
	c := cluster(t, clusterNode("n1", "True"), capturedPod("n1"))
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	_, err := c.PrepareRemoval(t.Context(), options(), false)
	if e := said(t, err); !strings.Contains(e.Message, "default/web-n1") || !strings.Contains(e.Fix, "--without-nodes=n1") {
		t.Error(e)
	}
	// The DaemonSet goes only when all agents have left: what is annotated after that is nobody's.
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateUninstalling})
	if _, err := c.PrepareRemoval(t.Context(), options(), false); err != nil {
		t.Error(err)
	}
}

func TestARemovalThatWasBrokenOffIsTakenBack(t *testing.T) {
	set := daemonSet(DefaultNamespace, "lateen-agent", map[string]string{"app": "lateen-agent"})
	set.Annotations = map[string]string{uninstallAnnotation: "true", "theirs": "x"}
	for _, state := range []string{stateUninstalling, stateInstalled} {
		c := cluster(t, clusterNode("n1", "True"), clusterNode("n2", "True"), agentPod("n1", "true"), agentPod("n2", ""), set.DeepCopy())
		recorded(t, c, &Record{Namespace: DefaultNamespace, State: state})
		o := options()
		o.Wait = true
		_, err := c.Prepare(t.Context(), o)
		if e := said(t, err); !strings.Contains(e.Fix, "lateen upgrade") {
			t.Error(e)
		}
		i, err := c.PrepareUpgrade(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(i.Plan.Before, func(s string) bool { return strings.Contains(s, "take the removal back") }) {
			t.Errorf("the plan does not say so: %v", i.Plan.Before)
		}
		if err := i.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Until the agents are back a run that is broken off, too, begins with this.
		if r, err := c.Find(t.Context()); err != nil || r.State != stateUninstalling {
			t.Errorf("%+v %v", r, err)
		}
		if err := i.undoUninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := c.Client.AppsV1().DaemonSets(DefaultNamespace).Get(t.Context(), "lateen-agent", metav1.GetOptions{})
		if _, there := d.Annotations[uninstallAnnotation]; err != nil || there || d.Annotations["theirs"] != "x" {
			t.Errorf("%v %v", d.Annotations, err)
		}
		if agents, err := c.nodeAgents().pods(t.Context(), DefaultNamespace); err != nil || len(agents) != 0 {
			t.Errorf("agents that know of the removal live on: %d, %v", len(agents), err)
		}
		if r, err := c.Find(t.Context()); err != nil || r.State != stateInstalling {
			t.Errorf("%+v %v", r, err)
		}
	}
}

func TestAgentsThatWereToldToLeaveAreNotWell(t *testing.T) {
	set := daemonSet(DefaultNamespace, "lateen-agent", map[string]string{"app": "lateen-agent"})
	if state, err := cluster(t, set).State(t.Context(), "DaemonSet", DefaultNamespace, "lateen-agent"); err != nil {
		t.Fatal(state, err)
	}
	set.Annotations = map[string]string{uninstallAnnotation: "true"}
	_, err := cluster(t, set).State(t.Context(), "DaemonSet", DefaultNamespace, "lateen-agent")
	if e := said(t, err); !strings.Contains(e.Message, "told to leave") || !strings.Contains(e.Fix, "lateen upgrade") {
		t.Error(e)
	}
}
