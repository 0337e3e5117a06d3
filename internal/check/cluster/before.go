package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// newestTested is the newest version of Kubernetes that the tests of this version of Lateen run on; oldestKernel the oldest of Linux that
// has what the agent's rules need.
const (
	newestTested = "1.36"
	oldestKernel = "5.4"
)

func probeReach(ctx context.Context, t *Target) (string, *Finding) {
	began := time.Now()
	// What everybody may ask. A refusal is an answer, too; which rights are missing is the affair of LAT102.
	var said *api.Error
	if _, err := t.Cluster.Version(); err != nil && (!errors.As(err, &said) || said.Code != http.StatusForbidden && said.Code != http.StatusConflict) {
		return "", unable(err)
	}
	t.nodes, t.unseen = t.Cluster.Nodes(ctx)
	if t.unseen != nil && (!errors.As(t.unseen, &said) || said.Code != http.StatusForbidden) {
		return "", unable(t.unseen)
	}
	return fmt.Sprintf("%s answers in %s", t.Cluster.Host, time.Since(began).Round(time.Millisecond)), nil
}

func probeVersion(_ context.Context, t *Target) (string, *Finding) {
	found, err := t.Cluster.Version()
	if err != nil {
		return "", unable(err)
	}
	v, err := version.ParseGeneric(found)
	newest := version.MustParseGeneric(newestTested)
	if err == nil && (v.Major() > newest.Major() || v.Minor() > newest.Minor()) {
		return "", mild("see whether a later Lateen knows it; nothing is known to be wrong", "%s is newer than %s, the newest that this Lateen was tested on", found, newestTested)
	}
	return found, nil
}

func probeRights(ctx context.Context, t *Target) (string, *Finding) {
	all, err := install.Everything(t.Options)
	if err != nil {
		return "", unable(err)
	}
	missing, err := t.Cluster.Missing(ctx, all)
	if err != nil {
		return "", unable(err)
	}
	if len(missing) > 0 {
		return "", finding("use those of a cluster administrator (another --context), or have one grant these rights", "missing: %s", some(missing))
	}
	return "all that an installation needs", nil
}

// some is a list, cut where nobody reads on.
func some(items []string) string { return someOf(items, ", ") }

// someOf is the same of sentences, which have commas of their own.
func someOf(items []string, between string) string {
	const most = 6
	if len(items) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:most], between), len(items)-most)
	}
	return strings.Join(items, between)
}

func probeDefinitions(ctx context.Context, t *Target) (string, *Finding) {
	d, err := t.Cluster.Definitions(ctx, t.Options)
	if err != nil {
		return "", unable(err)
	}
	if len(d.Wrong) > 0 {
		return "", finding("upgrade what installed them, or, if nothing needs them, delete them (and all objects of their kinds) and install again", "%s", strings.Join(d.Wrong, "; "))
	}
	if t.Record != nil && len(d.Missing) > 0 {
		return "", finding("lateen upgrade makes them again", "missing: %s", some(d.Missing))
	}
	return fmt.Sprintf("%d there, %d to be made", d.There, len(d.Missing)), nil
}

func probeConflicts(ctx context.Context, t *Target) (string, *Finding) {
	o := t.Options
	o.Values = t.values()
	found, err := t.Cluster.Conflicts(ctx, o)
	if err != nil {
		return "", unable(err)
	}
	var names, alike []string
	for _, f := range found {
		if f.Unsure {
			alike = append(alike, f.String())
		} else {
			names = append(names, f.String())
		}
	}
	if len(names) == 0 && len(alike) > 0 {
		return "", mild("see whose they are; they have no rights in the cluster by which they could manage anything, and keep nobody from installing", "named like another mesh's: %s", some(alike))
	}
	if len(names) > 0 {
		return "", finding("have this mesh take Istio's place with lateen install --take-over=istio, or remove the other one first", "the same labels are managed by %s", strings.Join(names, "; "))
	}
	return "none", nil
}

func probeNodes(_ context.Context, t *Target) (string, *Finding) {
	if t.unseen != nil {
		return "", unable(t.unseen)
	}
	var wrong []string
	kernels := map[string]bool{}
	wanted := t.placed("agent", "node")
	for _, n := range wanted {
		i := n.Status.NodeInfo
		kernels[i.KernelVersion] = true
		v, err := version.ParseGeneric(i.KernelVersion)
		switch {
		case i.OperatingSystem != "" && i.OperatingSystem != "linux":
			wrong = append(wrong, fmt.Sprintf("%s runs %s", n.Name, i.OperatingSystem))
		case i.Architecture != "" && i.Architecture != "amd64" && i.Architecture != "arm64":
			wrong = append(wrong, fmt.Sprintf("%s is %s", n.Name, i.Architecture))
		case err == nil && v.LessThan(version.MustParseGeneric(oldestKernel)):
			wrong = append(wrong, fmt.Sprintf("%s has Linux %s", n.Name, i.KernelVersion))
		}
	}
	if len(t.nodes) == 0 {
		return "", mild("add a node", "the cluster has no nodes")
	}
	if len(wrong) > 0 {
		return "", finding("keep the mesh from these nodes with --set agent.nodeSelector.LABEL=VALUE and --set node.nodeSelector.LABEL=VALUE (here, too, with --pre); pods there cannot be in it. It needs Linux "+oldestKernel+" or later on amd64 or arm64", "%s", some(wrong))
	}
	list := []string{}
	for k := range kernels {
		list = append(list, k)
	}
	slices.Sort(list)
	text := fmt.Sprintf("%d nodes, Linux %s", len(wanted), some(list))
	if kept := len(t.nodes) - len(wanted); kept > 0 {
		text += fmt.Sprintf("; the mesh is kept from %d more", kept)
	}
	return text, nil
}

func probeReady(_ context.Context, t *Target) (string, *Finding) {
	if t.unseen != nil {
		return "", unable(t.unseen)
	}
	var down []string
	for _, n := range t.nodes {
		if !nodeReady(n) {
			down = append(down, n.Name)
		}
	}
	if len(down) > 0 {
		return "", finding("see kubectl describe node "+down[0], "not ready: %s", some(down))
	}
	return fmt.Sprintf("all %d", len(t.nodes)), nil
}

func nodeReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// platforms keep CNI plugins or their configuration elsewhere than usual.
var platforms = []struct {
	name            string
	is              func(corev1.NodeSystemInfo) bool
	binDir, confDir string
}{
	{"k3s", func(i corev1.NodeSystemInfo) bool { return strings.Contains(i.KubeletVersion, "+k3s") }, "/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
	{"MicroK8s", func(i corev1.NodeSystemInfo) bool { return strings.Contains(i.KubeletVersion, "microk8s") }, "/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/current/args/cni-network"},
	{"Google's Container-Optimized OS", func(i corev1.NodeSystemInfo) bool { return strings.Contains(i.OSImage, "Container-Optimized OS") }, "/home/kubernetes/bin", "/etc/cni/net.d"},
	{"OpenShift", func(i corev1.NodeSystemInfo) bool {
		return strings.Contains(i.OSImage, "Red Hat Enterprise Linux CoreOS")
	}, "/var/lib/cni/bin", "/etc/cni/multus/net.d"},
}

func probeFolders(_ context.Context, t *Target) (string, *Finding) {
	if t.unseen != nil {
		return "", unable(t.unseen)
	}
	bin, conf := t.folder("binDir", "/opt/cni/bin"), t.folder("confDir", "/etc/cni/net.d")
	for _, n := range t.placed("agent") {
		for _, p := range platforms {
			if p.is(n.Status.NodeInfo) && (bin != p.binDir || conf != p.confDir) {
				return "", finding(fmt.Sprintf("--set cni.binDir=%s --set cni.confDir=%s", p.binDir, p.confDir), "node %s is %s, which has them at %s and %s; the values say %s and %s", n.Name, p.name, p.binDir, p.confDir, bin, conf)
			}
		}
	}
	return bin + ", " + conf, nil
}

// folder is a value of the installation's.
func (t *Target) folder(name, otherwise string) string {
	if cni, ok := t.values()["cni"].(map[string]any); ok {
		if dir, ok := cni[name].(string); ok {
			return dir
		}
	}
	return otherwise
}

// probeKubeProxy looks at how connections to services' addresses reach pods: the mesh redirects them first, inside the pod, so what
// rewrites them earlier keeps them from it.
func probeKubeProxy(ctx context.Context, t *Target) (string, *Finding) {
	maps := t.Cluster.Client.CoreV1().ConfigMaps("kube-system")
	cilium, err := maps.Get(ctx, "cilium-config", metav1.GetOptions{})
	switch {
	case err == nil && cilium.Data["cni-exclusive"] == "true":
		return "", finding("helm upgrade cilium with cni.exclusive=false", "Cilium removes the configuration of other CNI plugins (cni-exclusive in ConfigMap kube-system/cilium-config), so pods would not be captured at birth")
	case err == nil && cilium.Data["kube-proxy-replacement"] != "" && cilium.Data["kube-proxy-replacement"] != "false" && cilium.Data["bpf-lb-sock-hostns-only"] != "true":
		return "", finding("helm upgrade cilium with socketLB.hostNamespaceOnly=true", "Cilium replaces services' addresses in pods' own sockets, before the mesh sees them (bpf-lb-sock-hostns-only in ConfigMap kube-system/cilium-config)")
	case err == nil:
		return "Cilium, set up to leave pods' sockets alone", nil
	case !apierrors.IsNotFound(err):
		return "", unable(err)
	}
	proxy, err := maps.Get(ctx, "kube-proxy", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "nothing is known of it (no ConfigMap kube-system/kube-proxy)", nil
	} else if err != nil {
		return "", unable(err)
	}
	mode := "iptables"
	for _, line := range strings.Split(proxy.Data["config.conf"], "\n") {
		if value, ok := strings.CutPrefix(line, "mode:"); ok && strings.Trim(value, ` "`) != "" {
			mode = strings.Trim(value, ` "`)
		}
	}
	if mode != "iptables" && mode != "nftables" {
		return "", mild("use nftables or iptables, if something does not work", "kube-proxy is in mode %s, which is not tested", mode)
	}
	return "kube-proxy in mode " + mode, nil
}

func probePodSecurity(ctx context.Context, t *Target) (string, *Finding) {
	n, err := t.Cluster.Client.CoreV1().Namespaces().Get(ctx, t.Options.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "the namespace " + t.Options.Namespace + " is made with it", nil
	} else if err != nil {
		return "", unable(err)
	}
	if n.DeletionTimestamp != nil {
		leaving := install.Leaving(n.Name)
		return "", finding(leaving.Fix, "%s", leaving.Message)
	}
	const label = "pod-security.kubernetes.io/enforce"
	if level := n.Labels[label]; level != "" && level != "privileged" {
		return "", finding(fmt.Sprintf("kubectl label namespace %s %s=privileged --overwrite", n.Name, label), "namespace %s enforces the level %s, which forbids the agents what they need", n.Name, level)
	}
	return "nothing is forbidden", nil
}
