package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/names"
	"lateen.dev/lateen/internal/engine/local/podspec"
	"lateen.dev/lateen/internal/engine/local/rollout"
	"lateen.dev/lateen/internal/engine/local/schedule"
	"lateen.dev/lateen/internal/engine/local/servicenat"
	"lateen.dev/lateen/internal/engine/local/services"
	"lateen.dev/lateen/internal/model"
)

const (
	reconcileRetry = time.Second
	// failedStay is how long a Deployment's pod that could not be made stays before another is tried.
	failedStay = 2 * time.Second
)

// published is what reconcile last told the rest of the world, so that it only tells what is new.
type published struct {
	files map[string][]byte
	plan  servicenat.Plan
	nat   map[string]bool // nodes that have the plan
	// waiting are those who wait for the world to be told of what was when they began to.
	waiting []chan struct{}
}

// reconciler makes the world fit the objects. The state's lock guards what it changes of pods. seen is its one run's own, and
// users has a lock of its own; the other fields never change.
type reconciler struct {
	state           *state
	feed            *agentFeed
	lifecycle       *lifecycle
	dns             *names.Server
	families        []*fabric.Family
	dir             runDir
	adminOnLoopback bool // node proxies answer the node's whole network
	log             *slog.Logger
	waypoints       *waypoints // nil: no Gateway is deployed

	users identities
	seen  published // the state that was last published
}

func newReconciler(s *state, feed *agentFeed, pods *lifecycle, dns *names.Server, families []*fabric.Family, dir runDir, adminOnLoopback bool,
	log *slog.Logger) *reconciler {
	return &reconciler{state: s, feed: feed, lifecycle: pods, dns: dns, families: families, dir: dir, adminOnLoopback: adminOnLoopback, log: log,
		seen: published{files: map[string][]byte{}, nat: map[string]bool{}}}
}

// loop makes the world fit the objects whenever something changed.
func (r *reconciler) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.state.wakeup:
		}
		if err := r.reconcile(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("reconcile; trying again", "err", err, "in", reconcileRetry)
			time.AfterFunc(reconcileRetry, r.state.kick)
		}
	}
}

// reconcile makes and ends pods as the objects ask, then tells control plane, agents, kernel and resolver what there is.
// Only one runs at a time.
func (r *reconciler) reconcile(ctx context.Context) error {
	r.state.mu.Lock()
	if !r.state.stopping {
		r.steer(ctx)
	}
	close(r.state.steered)
	r.state.steered = make(chan struct{})
	r.seen.waiting = append(r.seen.waiting, r.state.told)
	r.state.told = make(chan struct{})
	pods, nodes := r.state.reportPods(), r.state.reportNodes()
	var svcs []*corev1.Service
	for _, o := range r.state.store.list("Service") {
		svcs = append(svcs, o.Value.(*corev1.Service))
	}
	r.feed.tell()
	r.state.mu.Unlock()

	err := r.writeReports(nodes, pods)
	resolved := services.Resolve(svcs, pods)
	r.dns.Set(names.NewZone(resolved, r.families[0].DNSIP))
	if err = errors.Join(err, r.translate(servicenat.PlanOf(resolved))); err != nil {
		return err
	}
	for _, told := range r.seen.waiting {
		close(told)
	}
	r.seen.waiting = nil
	return nil
}

// translate installs the plan on every node that does not have it yet.
func (r *reconciler) translate(plan servicenat.Plan) error {
	if !plan.Equal(r.seen.plan) {
		r.seen.plan = plan
		clear(r.seen.nat)
	}
	var errs []error
	for _, n := range r.state.nodes {
		if r.seen.nat[n.name] {
			continue
		}
		var families []servicenat.Config
		for _, f := range r.families {
			families = append(families, servicenat.Config{ServiceCIDR: f.ServiceCIDR, Resolver: f.DNSIP})
		}
		err := servicenat.Apply(n.NetNS, plan, families...)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n.name, err))
			continue
		}
		r.seen.nat[n.name] = true
	}
	return errors.Join(errs...)
}

// steer starts and ends pods.
func (r *reconciler) steer(ctx context.Context) {
	if r.waypoints != nil {
		r.waypoints.steer()
	}
	for _, p := range r.state.pods {
		if r.state.store.objects[p.id.owner] == nil {
			p.stop()
		}
	}
	for _, o := range r.state.store.list("Pod") {
		if len(r.state.podsOf(o.Key)) > 0 {
			continue
		}
		v := o.Value.(*corev1.Pod)
		r.complain(o.Key, r.makePod(ctx, o, v.Name, v.Labels, v.Annotations, &v.Spec, ""))
	}
	for _, o := range r.state.store.list("Deployment") {
		r.steerDeployment(ctx, o)
	}
}

func (r *reconciler) steerDeployment(ctx context.Context, o *stored) {
	d := o.Value.(*appsv1.Deployment)
	hash := templateHash(&d.Spec.Template, o.dir)
	var views []rollout.Pod
	byName := map[string]*pod{}
	for _, p := range r.state.podsOf(o.Key) {
		if p.phase == corev1.PodFailed && !p.stopping {
			// A pod that could not be made is tried anew, but not in a tight loop.
			if wait := time.Until(p.id.created.Add(failedStay)); wait > 0 {
				time.AfterFunc(wait, r.state.kick)
			} else {
				p.stop()
			}
		}
		byName[p.id.name] = p
		views = append(views, rollout.Pod{Name: p.id.name, Hash: p.id.hash, Ready: p.ready(), Terminating: p.stopping, Created: p.id.created})
	}
	steps := rollout.Next(rollout.WishOf(d, hash), views)
	for _, name := range steps.Delete {
		byName[name].stop()
	}
	var err error
	for range steps.Create {
		t := &d.Spec.Template
		labels := map[string]string{}
		maps.Copy(labels, t.Labels)
		labels["pod-template-hash"] = hash
		if err = r.makePod(ctx, o, fmt.Sprintf("%s-%s-%s", d.Name, hash, randomName(5)), labels, t.Annotations, &t.Spec, hash); err != nil {
			break
		}
	}
	r.complain(o.Key, err)
}

// complain keeps why the pods of an object cannot be made, for its status; a nil error ends the complaint.
func (r *reconciler) complain(k model.Key, err error) {
	if err == nil {
		delete(r.state.complaints, k)
		return
	}
	if r.state.complaints[k] != err.Error() {
		r.log.Warn("cannot make pods", "for", k.String(), "err", err)
	}
	r.state.complaints[k] = err.Error()
}

// makePod starts a pod's life. The state's lock must be held.
func (r *reconciler) makePod(ctx context.Context, owner *stored, name string, labels, annotations map[string]string, spec *corev1.PodSpec, hash string) error {
	ns := owner.Key.Namespace
	account := podspec.ServiceAccountOf(spec)
	if r.state.store.find(api.Key{Kind: "ServiceAccount", Namespace: ns, Name: account}) == nil {
		return fmt.Errorf("ServiceAccount %q not found in namespace %s; apply one", account, ns)
	}
	var candidates []schedule.Node
	for _, n := range r.state.nodes {
		c := schedule.Node{Name: n.name, Labels: n.labels, Free: n.ips.free(), Cannot: r.cannotHost(n, spec, owner.Key, hash)}
		if spec.HostNetwork {
			c.Free = 1 // it takes no address
		}
		for _, p := range r.state.pods {
			if p.id.node == n && !p.stopping {
				c.Pods++
				if p.id.owner == owner.Key {
					c.Same++
				}
			}
		}
		candidates = append(candidates, c)
	}
	on, err := schedule.Pick(candidates, spec.NodeName, spec.NodeSelector)
	if err != nil {
		return err
	}
	n := r.state.nodes.named(on)
	ips := n.IPs()
	if !spec.HostNetwork {
		ip, err := n.ips.take()
		if err != nil {
			return err
		}
		ips = n.PodIPs(ip)
	}
	uid := newUID()
	life, cancel := context.WithCancel(ctx)
	p := &pod{
		id: podIdentity{
			uid: uid, namespace: ns, name: name, node: n, ip: ips[0], ips: ips, port: "p" + uid[:8], owner: owner.Key, hash: hash, dir: owner.dir,
			spec: *spec.DeepCopy(), unixUID: r.users.of(ns, account), created: time.Now(), ownName: r.state.made[owner.Key].Name != "",
		},
		cancel: cancel, wakeup: make(chan struct{}, 1), parted: make(chan struct{}), done: make(chan struct{}),
		labels: labels, annotations: ownAnnotations(annotations), phase: corev1.PodPending,
	}
	if p.id.spec.RestartPolicy == "" {
		p.id.spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if owner.Kind == "Pod" {
		p.id.uid, p.id.port = owner.uid, "p"+owner.uid[:8]
	}
	dir := r.dir.pod(ns, name)
	add := func(specs []corev1.Container, init bool) {
		for i := range specs {
			p.containers = append(p.containers, &container{spec: &specs[i], init: init, waiting: "PodInitializing",
				log: logfile.New(filepath.Join(dir, specs[i].Name+".log"), logMax, 0o600)})
		}
	}
	add(p.id.spec.InitContainers, true)
	add(p.id.spec.Containers, false)
	r.state.pods = append(r.state.pods, p)
	go r.lifecycle.run(life, p)
	return nil
}

// Letters that make no words and cannot be mistaken for each other, as in Kubernetes' generated names.
const nameLetters = "bcdfghjklmnpqrstvwxz2456789"

func randomName(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = nameLetters[rand.IntN(len(nameLetters))]
	}
	return string(b)
}

// templateHash tells templates apart. Where the manifest lies is part of it: programs are found relative to that.
func templateHash(t *corev1.PodTemplateSpec, dir string) string {
	h := fnv.New64a()
	b, err := json.Marshal(t)
	if err != nil {
		panic("a decoded template is always JSON: " + err.Error())
	}
	h.Write(b)
	h.Write([]byte{0})
	h.Write([]byte(dir))
	sum := h.Sum64()
	var out [10]byte
	for i := range out {
		out[i] = nameLetters[sum%uint64(len(nameLetters))]
		sum /= uint64(len(nameLetters))
	}
	return string(out[:])
}
