// Package kube owns the mesh of a Kubernetes cluster as the command line asks for it: the engine's contract (package api), answered in this
// very process from the API server and the pages of the mesh's parts. It runs nothing, and changes nothing but what it is asked to.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/engine/api"
)

// Ports of the parts' pages.
const (
	controlPages = 15014
	proxyPages   = 15000
	proxyMetrics = 15020
)

// askTimeout bounds how long one part may take for one page.
const askTimeout = 10 * time.Second

// readyTimeout is the same of a replica that may well not answer at all.
const readyTimeout = 3 * time.Second

// longestPage is how much one part may say on one page: a hundred thousand pods are about 60 MiB.
const longestPage = 256 << 20

// Engine answers for the mesh of a cluster.
type Engine struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Namespace is where the mesh's parts are; Version is what is installed there.
	Namespace, Version string
	// Host names the cluster to people.
	Host string
	// Dial reaches the parts.
	Dial Dial

	most int64 // in place of longestPage
}

func (e *Engine) longest() int64 { return cmp.Or(e.most, longestPage) }

// Connect is a connection to the engine: its other end is served in this process until it is closed.
func (e *Engine) Connect(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	l := &once{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- &notifying{Conn: there, closed: l.Close}
	s := &http.Server{Handler: e.handler(), ReadHeaderTimeout: askTimeout}
	go func() { _ = s.Serve(l) }() // ends with the connection
	return here, nil
}

// once is a listener with a single connection.
type once struct {
	conn   chan net.Conn
	closed chan struct{}
	end    sync.Once
}

// Accept implements net.Listener.
func (l *once) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *once) Close() error {
	l.end.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *once) Addr() net.Addr { return forwarded{} }

// notifying ends its listener with itself.
type notifying struct {
	net.Conn
	closed func() error
}

// Close implements net.Conn.
func (n *notifying) Close() error {
	_ = n.closed()
	return n.Conn.Close()
}

// pods are those of one part of the mesh that live, the newest first.
func (e *Engine) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	list, err := e.Client.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=lateen-" + component})
	if err != nil {
		return nil, e.refused(err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return pods, nil
}

// onNode is the pod of a part on a node: one that is ready if there is one.
func (e *Engine) onNode(ctx context.Context, component, node string) (*corev1.Pod, error) {
	pods, err := e.pods(ctx, component)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != node })
	if i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return ready(&p) }); i >= 0 {
		return &pods[i], nil
	}
	if len(pods) > 0 {
		return &pods[0], nil
	}
	return nil, &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("node %s has no pod of lateen-%s", node, component), Fix: "see the nodes with `lateen status`, and what keeps it with kubectl describe daemonset -n " + e.Namespace + " lateen-" + component}
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// page asks a pod for a page. The caller closes it, which ends whatever streams.
func (e *Engine) page(ctx context.Context, p *corev1.Pod, port int, method, path string) (*http.Response, error) {
	resp, err := e.ask(ctx, p, port, method, path)
	if err != nil {
		return nil, &api.Error{Code: http.StatusBadGateway, Message: fmt.Sprintf("ask pod %s/%s: %v", p.Namespace, p.Name, unwrapped(err)),
			Fix: fmt.Sprintf("see whether it runs with kubectl get pod -n %s %s; these credentials need the right to create pods/portforward there", p.Namespace, p.Name)}
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, &api.Error{Code: http.StatusBadGateway, Message: fmt.Sprintf("pod %s/%s answered %s: %s", p.Namespace, p.Name, resp.Status, b), Fix: "see `lateen status`"}
	}
	return resp, nil
}

// ask is whatever a pod answers to a request for a page.
func (e *Engine) ask(ctx context.Context, p *corev1.Pod, port int, method, path string) (*http.Response, error) {
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, p.Namespace, p.Name, port)
	}}
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://localhost:%d%s", port, path), nil)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: t}).Do(req)
}

// read asks a pod for a whole page, and says what the time was there.
func (e *Engine) read(ctx context.Context, p *corev1.Pod, port int, path string) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := e.page(ctx, p, port, http.MethodGet, path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, e.longest()+1))
	if int64(len(b)) > e.longest() {
		return nil, time.Time{}, &api.Error{Code: http.StatusBadGateway, Message: fmt.Sprintf("pod %s/%s answered %s with more than %d MiB", p.Namespace, p.Name, path, e.longest()>>20), Fix: "see whether it is what it should be with kubectl describe pod -n " + p.Namespace + " " + p.Name}
	}
	at, _ := http.ParseTime(resp.Header.Get("Date")) // zero if it does not say
	return b, at, err
}

// Clocks are what the time is at each part that answers, by its pod's name.
func (e *Engine) Clocks(ctx context.Context) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for component, at := range map[string]struct {
		port int
		path string
	}{"control": {controlPages, "/ready"}, "agent": {controlPages, "/ready"}} {
		pods, err := e.pods(ctx, component)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			group.Go(func() {
				_, date, err := e.read(ctx, &pods[i], at.port, at.path)
				if err == nil && !date.IsZero() {
					mu.Lock()
					defer mu.Unlock()
					out[fmt.Sprintf("%s on %s", pods[i].Name, pods[i].Spec.NodeName)] = date
				}
			})
		}
	}
	group.Wait()
	return out, nil
}

// Status is the state of the whole mesh.
func (e *Engine) Status(ctx context.Context) (api.Status, error) {
	s, err := e.status(ctx)
	if err != nil {
		return api.Status{}, err
	}
	return *s, nil
}
