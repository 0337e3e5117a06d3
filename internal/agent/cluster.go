package agent

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lateen.dev/lateen/internal/agent/apiserver"
	"lateen.dev/lateen/internal/agent/cgroup"
	"lateen.dev/lateen/internal/agent/cni"
	"lateen.dev/lateen/internal/agent/cni/install"
	"lateen.dev/lateen/internal/agent/kubelet"
	"lateen.dev/lateen/internal/agent/redirect"
	podsource "lateen.dev/lateen/internal/agent/source/kube"
	"lateen.dev/lateen/internal/kube"
)

// kubeSettings are those of an agent on Kubernetes.
type kubeSettings struct {
	on         bool
	kubeconfig string
	runDir     string
	confDir    string
	binDir     string
	netnsDir   string
	procDir    string
	plugin     string
	mustStart  string
	kubelets   string
	daemonSet  string
	account    string
	namespace  string
	pod        string
}

// hostPrefix is where the node's folders are in the agent's container; what else has the same path in both.
const hostPrefix = "/host"

func (k *kubeSettings) flags(f *flag.FlagSet) {
	f.BoolVar(&k.on, "kube", false, "the node is one of a Kubernetes cluster: pods come from its API server; --node, the sockets and --http then have defaults")
	k.nodeFlags(f)
	f.StringVar(&k.kubeconfig, "kubeconfig", "", "with --kube: how to reach the API server (the pod's service account)")
	f.StringVar(&k.plugin, "cni-plugin", "/opt/lateen/bin/lateen-cni", "with --kube: the CNI plugin that is put onto the node")
	f.StringVar(&k.mustStart, "cni-must-start", "kube-system", "with --kube: comma-separated namespaces whose pods start also when they cannot be captured; the agent's own is one of them")
	f.StringVar(&k.kubelets, "kubelet-names", strings.Join(kubelet.Names, ","), "with --kube: comma-separated names of the processes that can be the node's kubelet")
	f.StringVar(&k.account, "cni-account", "lateen-cni", "with --kube: the service account, in the agent's namespace, as which the CNI plugin asks the API server while no agent runs")
	f.StringVar(&k.daemonSet, "daemonset", "lateen-agent", "with --kube: the agent's DaemonSet, whose deletion takes the mesh off the node")
}

// nodeFlags are those about what lies on the node.
func (k *kubeSettings) nodeFlags(f *flag.FlagSet) {
	k.procDir = "/proc"
	f.StringVar(&k.runDir, "run-dir", "/var/run/lateen", "with --kube: folder for sockets and state, the same on the node")
	f.StringVar(&k.confDir, "cni-conf-dir", hostPrefix+"/etc/cni/net.d", "with --kube: the node's network configurations; a path below /host is the node's without that")
	f.StringVar(&k.binDir, "cni-bin-dir", hostPrefix+"/opt/cni/bin", "with --kube: the node's CNI plugins")
	f.StringVar(&k.netnsDir, "netns-dir", "/var/run/netns", "with --kube: where the container runtime mounts network namespaces")
}

func (k *kubeSettings) stateFile() string  { return filepath.Join(k.confDir, "lateen-cni.state") }
func (k *kubeSettings) accessFile() string { return filepath.Join(k.confDir, "lateen-cni.access") }
func (k *kubeSettings) boxesFile() string  { return filepath.Join(k.runDir, "sandboxes.json") }
func (k *kubeSettings) socket() string     { return filepath.Join(k.runDir, "cni.sock") }

// node is what is installed, and where.
func (k *kubeSettings) node() install.Node {
	must := append(split(k.mustStart), k.namespace)
	slices.Sort(must)
	return install.Node{
		ConfDir: k.confDir, BinDir: k.binDir, Plugin: k.plugin, StateFile: k.stateFile(),
		Entry: cni.Entry{
			Type: cni.Type, Socket: k.socket(),
			StateFile: strings.TrimPrefix(k.stateFile(), hostPrefix), AccessFile: strings.TrimPrefix(k.accessFile(), hostPrefix),
			MustStart: slices.Compact(slices.DeleteFunc(must, func(n string) bool { return n == "" })),
		},
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// onKubernetes gives what was not given the values that hold on Kubernetes.
func (s *settings) onKubernetes(given map[string]bool) error {
	if !s.kube.on {
		return nil
	}
	k := &s.kube
	k.namespace, k.pod = os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME")
	s.node = cmp.Or(s.node, os.Getenv("NODE_NAME"))
	if s.node == "" {
		return errors.New("--node is missing; set NODE_NAME from spec.nodeName")
	}
	if k.namespace == "" {
		return errors.New("POD_NAMESPACE is not set; set it from metadata.namespace")
	}
	if s.probeGroup != 0 || s.engineSocket != "" {
		return errors.New("--kube goes with neither --engine-socket nor --probe-group: pods come from the API server, and the prober is the kubelet")
	}
	in := func(value *string, name string) { *value = cmp.Or(*value, filepath.Join(k.runDir, name)) }
	// The proxy is given this folder alone: it reads everybody's bytes, and the agent's token and sockets for others are none of its business.
	in(&s.zdsSocket, filepath.Join(proxyDir, "zds.sock"))
	in(&s.storeSocket, filepath.Join(proxyDir, "listener-store.sock"))
	in(&s.statusSocket, "agent.sock")
	if !given["http"] {
		s.http = ":15014"
	}
	return nil
}

// proxyDir is the folder, in that of all sockets and state, of what the agent and the node proxy share.
const proxyDir = "proxy"

// olderAccess is where an earlier version kept the plugin's token, in the folder of all sockets and state.
const olderAccess = "cni-access.json"

// servesOlder has node proxies of the version before find the sockets where they know them, beside that folder: an upgrade replaces the agents
// first, and until it comes to the proxies pods could not be born. The new ones are not given that folder.
func (k *kubeSettings) servesOlder(sockets ...string) error {
	for _, socket := range sockets {
		if filepath.Dir(socket) != filepath.Join(k.runDir, proxyDir) {
			continue
		}
		name := filepath.Base(socket)
		link := filepath.Join(k.runDir, name)
		// The former agent's socket is replaced at once: who tries meanwhile finds one of the two.
		if err := os.Remove(link + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Join(proxyDir, name), link+".new"); err != nil {
			return err
		}
		if err := os.Rename(link+".new", link); err != nil {
			return err
		}
	}
	return nil
}

// cluster are the parts of an agent that only Kubernetes has.
type cluster struct {
	settings     kubeSettings
	log          *slog.Logger
	metrics      *Metrics
	source       *podsource.Source
	installation *podsource.Installation
	prober       *kubelet.Prober
	node         install.Node
	access       *access
	known        chan cni.State // the newest that the plugin does not know yet
	alone        atomic.Bool    // no istio-cni is in the node's network configuration
	unread       string         // why that was not known at the last look; empty if it was

	keeping context.Context // ends when what is installed is to be taken off the node
	let     context.CancelFunc
	kept    sync.WaitGroup
	leaving sync.Mutex
}

func newCluster(s settings, metrics *Metrics, log *slog.Logger) (*cluster, error) {
	kube.Log(log)
	config, err := kube.Config(s.kube.kubeconfig, "")
	if err != nil {
		return nil, err
	}
	client, err := apiserver.New(config)
	if err != nil {
		return nil, err
	}
	// It has a budget of its own for what it asks.
	births, err := apiserver.New(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{settings: s.kube, log: log, metrics: metrics, node: s.kube.node(), known: make(chan cni.State, 1)}
	c.access = &access{config: config, client: client, namespace: s.kube.namespace, account: s.kube.account, file: s.kube.accessFile(), log: log}
	c.keeping, c.let = context.WithCancel(context.Background())
	c.look()
	c.source, err = podsource.New(client, podsource.Options{
		Node: s.node, Own: s.kube.namespace, Cgroup: podCgroups(s.kube.procDir, log), File: s.kube.boxesFile(), Proc: s.kube.procDir, Mounts: s.kube.netnsDir, Log: log, Births: births, Known: c.learned,
	})
	if err != nil {
		return nil, err
	}
	c.installation = podsource.NewInstallation(client, s.kube.namespace, s.kube.daemonSet, log)
	if err := s.kube.servesOlder(s.zdsSocket, s.storeSocket); err != nil {
		log.Warn("node proxies of the version before do not find this agent; pods wait for new ones", "err", err)
	}
	c.prober = kubelet.New(split(s.kube.kubelets), log, func() { metrics.captureError(stepRules) }, metrics.repairs.Inc)
	return c, nil
}

// podCgroups finds where the processes of pods are, or is nil where that would be of no use.
func podCgroups(proc string, log *slog.Logger) func(uid string) (redirect.Cgroup, bool) {
	pods, err := cgroup.FindPods(proc)
	root := cgroup.Namespace(proc)
	if err == nil {
		err = redirect.CanDisown(redirect.Cgroup{ID: 1, Level: 1, Root: root})
	}
	if err != nil {
		log.Warn("a process with CAP_NET_RAW in a captured pod can leave the capture by the node proxy's mark; take that capability from containers", "err", err)
		return nil
	}
	log.Info("what a captured pod's own processes mark as the node proxy's is captured, too")
	return func(uid string) (redirect.Cgroup, bool) {
		id, level, found := pods.Of(uid)
		if !found {
			return redirect.Cgroup{}, false
		}
		return redirect.Cgroup{ID: id, Level: level, Root: root}, true
	}
}

// installed is told after every look at the node's CNI configuration. Once that names another file, nobody reads an earlier version's token.
func (c *cluster) installed(err error, repaired bool) {
	c.metrics.installed(err, repaired)
	c.look()
	if err != nil {
		return
	}
	if err := os.Remove(filepath.Join(c.settings.runDir, olderAccess)); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.log.Warn("a token of an earlier version stays on the node", "err", err)
	}
}

// look finds out whether an Istio captures pods on this node.
func (c *cluster) look() {
	istio, err := c.node.Chains(istioCNI)
	c.alone.Store(err == nil && !istio)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.unread != text && err != nil {
		c.log.Warn("it is not known whether an istio-cni captures pods on this node, so what one may have left in pods stays there; see that the files of the network configuration can be read, or remove those that cannot", "err", err)
	}
	c.unread = text
}

// istioCNI is the plugin of an Istio in ambient mode. It takes itself out of the configuration when it goes, and leaves its rules in pods.
const istioCNI = "istio-cni"

// learned keeps what the plugin is to know until it is written: births do not wait for a disk.
func (c *cluster) learned(s cni.State) {
	select {
	case <-c.known:
	default:
	}
	c.known <- s
}

// teach writes what the plugin is to know without an agent until ctx ends. Nobody else does, so that nothing is written once
// it has ended.
func (c *cluster) teach(ctx context.Context) {
	for {
		select {
		case s := <-c.known:
			if ctx.Err() != nil {
				return
			}
			if err := s.Save(c.node.StateFile); err != nil {
				c.metrics.captureError(stepPlugin)
				c.log.Warn("while the agent is away the CNI plugin knows an older state of namespaces and pods", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// run serves the CNI plugin, keeps it installed and has probes pass until ctx ends.
func (c *cluster) run(ctx context.Context, a *Agent) error {
	server, err := cni.Listen(c.settings.socket(), cniHandler{nursery: c.source, agent: a, limit: captureTime}, c.log, c.metrics.Answered)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, c.let)()
	var all sync.WaitGroup
	defer all.Wait()
	c.kept.Go(func() { c.prober.Run(c.keeping) })
	c.kept.Go(func() { c.access.keep(c.keeping) })
	c.kept.Go(func() { c.teach(c.keeping) })
	c.kept.Go(func() { c.node.Keep(c.keeping, c.log, c.installed) })
	all.Go(func() { c.installation.Run(ctx) })
	all.Go(func() {
		select {
		case <-c.installation.Asked():
			var stays []string
			leave := func() (err error) {
				stays, err = c.leave(a)
				return err
			}
			obey(ctx, leave, func() error { return c.installation.Left(ctx, c.settings.pod, stays) }, leaveAgain, c.log)
		case <-ctx.Done():
		}
	})
	err = server.Serve(ctx)
	c.let()
	c.kept.Wait()
	return err
}

// leaveAgain is the time between attempts to take off the node what could not be taken off, or to say that it is.
const leaveAgain = 5 * time.Second

// obey leaves the node, however often that takes, and says so only then: whoever waits for it removes the agents and the proxies next, and a
// pod that is still captured would be cut off.
func obey(ctx context.Context, leave, say func() error, again time.Duration, log *slog.Logger) {
	for {
		err := leave()
		if err == nil {
			if err = say(); err == nil {
				return
			}
			log.Error("the node is left, and who waits for that does not hear of it; it is tried again", "err", err)
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// end is called when the agent is told to end. One that is only replaced leaves all as it is.
func (c *cluster) end(a *Agent) {
	if !c.installation.Over(context.Background()) {
		return
	}
	_, _ = c.leave(a) // it has said what stays; there is no time to try again
	if err := emptied(c.settings.runDir); err != nil {
		c.log.Warn("files of the mesh stay on the node", "err", err)
	}
}

// leaveTime is how long pods may take to be released when the mesh leaves.
const leaveTime = 20 * time.Second

// leave takes all that is the mesh's off the node, the pods' redirections first. What stays in pods whose networks cannot be
// changed is named; it is no reason to try again.
func (c *cluster) leave(a *Agent) (stays []string, err error) {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	c.log.Info("the mesh leaves this node")
	// Nothing is repaired or written any more.
	c.let()
	c.kept.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := a.Leave(ctx); err != nil {
		c.log.Warn("pods are released without waiting any longer; what they have open through the mesh breaks", "err", err)
	}
	since := time.Now()
	if stays, err = removeAll(c.settings, c.log); err != nil {
		c.log.Error("something of the mesh stays on this node; `lateen-agent uninstall-cni` on it tries again", "err", err)
		return stays, err
	}
	ask, cancelAsk := context.WithTimeout(context.Background(), time.Second)
	defer cancelAsk()
	// An agent that ends already asks for nothing any more.
	hung, _ := a.hung(ask, since)
	for _, pod := range hung {
		stays = append(stays, "pod "+pod+": the kernel has not answered what it was asked for in its network before")
	}
	if len(stays) == 0 {
		c.log.Info("the node is as it was before the mesh")
	}
	return stays, nil
}

// removeAll takes what is installed, redirections and rules off the node, without an agent or an API server.
func removeAll(k kubeSettings, log *slog.Logger) (stays []string, err error) {
	err = k.node().Uninstall()
	swept := newSweeper().sweep(k.netnsDir, k.procDir, k.boxesFile())
	if swept.count > 0 {
		log.Info(fmt.Sprintf("removed the redirections that were left in %d pods", swept.count))
	}
	for _, network := range swept.stays {
		log.Warn("a pod's network cannot be looked at or changed; if it was redirected it stays so until the pod is deleted", "network", network)
	}
	err = errors.Join(err, swept.failed, redirect.RemoveProbes())
	for _, path := range []string{k.accessFile(), k.boxesFile()} {
		if removeErr := os.Remove(path); removeErr != nil && !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return swept.stays, err
}

// emptied removes what is in the mesh's own folder.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

const uninstallVerb = "uninstall-cni"

// uninstall is the command for a node that an agent has not left as it should.
func uninstall(args []string, stderr io.Writer) int {
	s := settings{format: "text"}
	f := flag.NewFlagSet("lateen-agent "+uninstallVerb, flag.ContinueOnError)
	f.SetOutput(stderr)
	s.kube.nodeFlags(f)
	if err := f.Parse(args); err != nil || f.NArg() > 0 {
		return exitUsage
	}
	// An agent that runs would put everything back.
	if conn, err := net.DialTimeout("unix", s.kube.socket(), time.Second); err == nil {
		conn.Close()
		fmt.Fprintln(stderr, "lateen-agent: an agent runs on this node and would install the plugin again; delete its DaemonSet first")
		return exitError
	}
	// The log names the pods that keep rules.
	if _, err := removeAll(s.kube, s.logger(stderr)); err != nil {
		fmt.Fprintln(stderr, "lateen-agent:", err)
		return exitError
	}
	return exitOK
}
