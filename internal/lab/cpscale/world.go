package cpscale

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// world is the directory of objects, a file for each, as the local engine keeps them.
type world struct {
	dir  string
	size Size
	// ready and port are what changes flip.
	ready []bool // by pod
	port  []int  // by service
	turn  int
}

const namespace = "shop"

func newWorld(dir string, size Size) (*world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	w := &world{dir: dir, size: size, ready: make([]bool, size.Pods), port: make([]int, size.Services)}
	for i := range w.port {
		w.port[i] = 8080
		if err := w.write(serviceName(i), w.service(i)); err != nil {
			return nil, err
		}
	}
	for i := range w.ready {
		w.ready[i] = true
		if err := w.write(w.podName(i), w.pod(i)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func serviceName(i int) string { return "service-" + strconv.Itoa(i) }

// podName is after the pod's service, as a Deployment's would be.
func (w *world) podName(i int) string {
	return fmt.Sprintf("%s-%d", serviceName(i%w.size.Services), i/w.size.Services)
}

func nodeName(i int) string { return "n" + strconv.Itoa(i+1) }

func (w *world) service(i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, uid: s%d, labels: {app: %s}}
spec:
  selector: {app: %s}
  clusterIP: 10.%d.%d.%d
  ports: [{name: http, port: 80, targetPort: %d}, {name: metrics, port: 15020, targetPort: 15020}]
`, serviceName(i), namespace, i, serviceName(i), serviceName(i), 96+i>>16, i>>8&255, i&255, w.port[i])
}

func (w *world) pod(i int) string {
	ready := "False"
	if w.ready[i] {
		ready = "True"
	}
	app := serviceName(i % w.size.Services)
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: %s
  uid: p%d
  labels: {app: %s, version: v1}
  annotations: {ambient.istio.io/redirection: enabled}
spec: {nodeName: %s, serviceAccountName: %s, containers: [{name: app}]}
status: {phase: Running, podIP: 172.%d.%d.%d, conditions: [{type: Ready, status: "%s"}]}
`, w.podName(i), namespace, i, app, nodeName(i%w.size.Proxies), app, 16+i>>16, i>>8&255, i&255, ready)
}

// write replaces a file as the local engine does, so that no reader sees half of it.
func (w *world) write(name, text string) error {
	path := filepath.Join(w.dir, name+".yaml")
	hidden := filepath.Join(w.dir, "."+name+".yaml.new")
	if err := os.WriteFile(hidden, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// serviceEach is how many changes there are to one that is a service's.
const serviceEach = 10

// next prepares a change: most are a pod that becomes ready or unready, some a service whose port leads elsewhere. It returns the
// resource that every proxy will hear of, and what makes the change.
func (w *world) next() (resource string, change func() error) {
	n := w.turn
	w.turn++
	if n%serviceEach == serviceEach-1 {
		i := (n / serviceEach) % w.size.Services
		w.port[i] ^= 8080 ^ 8081
		return fmt.Sprintf("%s/%s.%s.svc.cluster.local", namespace, serviceName(i), namespace), func() error { return w.write(serviceName(i), w.service(i)) }
	}
	i := n % w.size.Pods
	w.ready[i] = !w.ready[i]
	return fmt.Sprintf("Kubernetes//Pod/%s/%s", namespace, w.podName(i)), func() error { return w.write(w.podName(i), w.pod(i)) }
}
