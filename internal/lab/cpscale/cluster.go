package cpscale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/kube/clients"
	"lateen.dev/lateen/internal/model/wellknown"
)

// cluster has the same objects in an API server that nobody else writes to: pods that no kubelet runs, as large as real ones.
type cluster struct {
	client kubernetes.Interface
	size   Size
	ready  []bool // by pod
	port   []int32
	turn   int
}

const (
	proxyNamespace = "lateen-system"
	proxyAccount   = "lateen-node"
	writersAtOnce  = 24
)

// newCluster fills an API server. It must be one for measuring: what is there stays there.
func newCluster(ctx context.Context, kubeconfig string, size Size, progress func(string)) (*cluster, error) {
	cfg, err := kube.Config(kubeconfig, "")
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // no limit of our own
	c := &cluster{size: size, ready: make([]bool, size.Pods), port: make([]int32, size.Services)}
	if c.client, err = clients.Typed(cfg); err != nil {
		return nil, err
	}
	for _, ns := range []string{namespace, proxyNamespace} {
		if err := made(c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})); err != nil {
			return nil, err
		}
	}
	progress(fmt.Sprintf("make %d nodes, %d services and %d pods", size.Proxies, size.Services, size.Pods))
	steps := []struct {
		n    int
		make func(context.Context, int) error
	}{{1, c.account(proxyNamespace, func(int) string { return proxyAccount })}, {size.Services, c.account(namespace, serviceName)},
		{size.Proxies, c.makeNode}, {size.Proxies, c.makeProxy}, {size.Services, c.makeService}, {size.Pods, c.makePod}}
	for _, step := range steps {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(writersAtOnce)
		for i := range step.n {
			group.Go(func() error { return step.make(ctx, i) })
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// made forgives what is there already, of a run before.
func made[T any](_ T, err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *cluster) account(ns string, name func(int) string) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		return made(c.client.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}, metav1.CreateOptions{}))
	}
}

func (c *cluster) makeNode(ctx context.Context, i int) error {
	labels := map[string]string{"kubernetes.io/hostname": nodeName(i), corev1.LabelTopologyRegion: "r", corev1.LabelTopologyZone: fmt.Sprint("z", i%3)}
	return made(c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: labels}}, metav1.CreateOptions{}))
}

// makeProxy makes the pod that a proxy's token is bound to.
func (c *cluster) makeProxy(ctx context.Context, i int) error {
	p := template("lateen-node-"+nodeName(i), proxyNamespace, proxyAccount, nodeName(i))
	return c.run(ctx, p, fmt.Sprintf("172.15.%d.%d", i>>8&255, i&255))
}

func (c *cluster) makeService(ctx context.Context, i int) error {
	c.port[i] = 8080
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName(i), Labels: map[string]string{"app": serviceName(i)}}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": serviceName(i)},
		Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}, {Name: "metrics", Port: 15020, TargetPort: intstr.FromInt32(15020)}}}}
	if err := made(c.client.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{})); err != nil {
		return err
	}
	return c.lead(ctx, i) // of a run before, it may lead elsewhere
}

// lead has a service's port lead where c.port says.
func (c *cluster) lead(ctx context.Context, i int) error {
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/ports/0/targetPort","value":%d}]`, c.port[i])
	_, err := c.client.CoreV1().Services(namespace).Patch(ctx, serviceName(i), types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (c *cluster) podName(i int) string {
	return fmt.Sprintf("%s-%d", serviceName(i%c.size.Services), i/c.size.Services)
}

func (c *cluster) makePod(ctx context.Context, i int) error {
	app := serviceName(i % c.size.Services)
	p := template(c.podName(i), namespace, app, nodeName(i%c.size.Proxies))
	p.Labels = map[string]string{"app": app, "version": "v1", "pod-template-hash": "5d4f8c7b9"}
	p.Annotations = map[string]string{wellknown.Redirection: "enabled", "prometheus.io/scrape": "true", "prometheus.io/port": "15020"}
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-5d4f8c7b9", UID: types.UID(app), Controller: &yes, BlockOwnerDeletion: &yes}}
	c.ready[i] = true
	return c.run(ctx, p, fmt.Sprintf("172.%d.%d.%d", 16+i>>16, i>>8&255, i&255))
}

// template is a pod with what pods usually have, most of which no mesh reads.
func template(name, ns, account, node string) *corev1.Pod {
	env := []corev1.EnvVar{}
	for i := range 12 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: strings.Repeat("x", 24)})
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10}
	need := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: corev1.PodSpec{
		NodeName: node, ServiceAccountName: account,
		Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/shop/app:v1.2.3", Env: env, ReadinessProbe: probe, LivenessProbe: probe,
			Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 15020}},
			Resources: corev1.ResourceRequirements{Requests: need, Limits: need}}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
}

// run makes a pod and writes its status, as its kubelet would.
func (c *cluster) run(ctx context.Context, p *corev1.Pod, ip string) error {
	if err := made(c.client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})); err != nil {
		return err
	}
	return c.report(ctx, p.Namespace, p.Name, ip, true)
}

func (c *cluster) report(ctx context.Context, ns, name, ip string, ready bool) error {
	status := map[bool]string{true: "True", false: "False"}[ready]
	at := ""
	if ip != "" {
		at = fmt.Sprintf(`"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"hostIP":"10.0.0.1",`, ip, ip)
	}
	patch := fmt.Sprintf(`{"status":{%s"conditions":[{"type":"Ready","status":%q},{"type":"ContainersReady","status":%q}]}}`, at, status, status)
	_, err := c.client.CoreV1().Pods(ns).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// next is world's next.
func (c *cluster) next(ctx context.Context) (resource string, change func() error) {
	n := c.turn
	c.turn++
	if n%serviceEach == serviceEach-1 {
		i := (n / serviceEach) % c.size.Services
		c.port[i] ^= 8080 ^ 8081
		return fmt.Sprintf("%s/%s.%s.svc.cluster.local", namespace, serviceName(i), namespace), func() error { return c.lead(ctx, i) }
	}
	i := n % c.size.Pods
	c.ready[i] = !c.ready[i]
	return fmt.Sprintf("Kubernetes//Pod/%s/%s", namespace, c.podName(i)), func() error { return c.report(ctx, namespace, c.podName(i), "", c.ready[i]) }
}

// token is what the proxy of node i proves itself with.
func (c *cluster) token(ctx context.Context, i int) (string, error) {
	name := "lateen-node-" + nodeName(i)
	pod, err := c.client.CoreV1().Pods(proxyNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	day := int64(24 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}, ExpirationSeconds: &day,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}}}
	made, err := c.client.CoreV1().ServiceAccounts(proxyNamespace).CreateToken(ctx, proxyAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if made.Status.Token == "" {
		return "", errors.New("the API server issued an empty token")
	}
	return made.Status.Token, nil
}

// root waits for the root certificate, which the control plane publishes in every namespace.
func (c *cluster) root(ctx context.Context) ([]byte, error) {
	const name, key = "istio-ca-root-cert", "root-cert.pem"
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		m, err := c.client.CoreV1().ConfigMaps(proxyNamespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && m.Data[key] != "" {
			return []byte(m.Data[key]), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the control plane does not publish its root in ConfigMap %s/%s: %w", proxyNamespace, name, errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
