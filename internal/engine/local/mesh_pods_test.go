package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

func readiness(m *mesh) {
	pod := m.pods("app=web")[0]
	m.exec("pod/"+pod.Name, "touch", "/tmp/ill")
	m.eventually("the pod is not ready", func() error {
		if n := readyPods(m.pods("app=web")); n != 1 {
			return fmt.Errorf("%d ready", n)
		}
		return nil
	})
	m.eventually("nobody is sent to it", func() error {
		for range 20 {
			if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code != 0 || strings.HasPrefix(out, pod.Name) {
				return errors.New(out)
			}
		}
		return nil
	})
	// A probe that the machine answers late has another reason until the next one.
	m.eventually("the reason is told", func() error {
		s, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pods {
			if p.Name == pod.Name && !strings.Contains(p.Reason, "readiness probe: GET /health answered 503") {
				return fmt.Errorf("reason %q", p.Reason)
			}
		}
		return nil
	})
	m.exec("pod/"+pod.Name, "rm", "/tmp/ill")
	m.awaitReady("app=web", 2)
}

func restarts(m *mesh) {
	pod := m.pods("app=web")[0]
	// Only root in the pod could; its user may end its own processes.
	m.exec("pod/"+pod.Name, "sh", "-c", "kill -9 $(grep -l '^lateen-helper' /proc/[0-9]*/comm | head -1 | cut -d/ -f3)")
	m.eventually("it has started again", func() error {
		for _, p := range m.pods("app=web") {
			if p.Name == pod.Name && p.Status.ContainerStatuses[0].RestartCount == 1 {
				if l := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; l == nil || l.ExitCode != 137 {
					return fmt.Errorf("last state %+v", l)
				}
				return nil
			}
		}
		return errors.New("no restart")
	})
	m.awaitReady("app=web", 2)
}

func rollingUpdate(m *mesh) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	failures := make(chan string, 1000)
	seen := make(chan string, 100000)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/")
			if code != 0 {
				failures <- out
			}
			seen <- out
		}
	})
	m.eventually("a request is answered", func() error {
		if len(seen)+len(failures) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	m.applied(strings.Replace(webAndClient, "value: one", "value: two", 1))
	m.eventually("all pods are new", func() error {
		pods := m.pods("app=web")
		for _, p := range pods {
			if p.Spec.Containers[0].Env[0].Value != "two" {
				return fmt.Errorf("%s is old", p.Name)
			}
		}
		if len(pods) != 2 || readyPods(pods) != 2 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	close(stop)
	wg.Wait()
	close(failures)
	close(seen)
	for f := range failures {
		m.Errorf("a request failed: %s", f)
	}
	versions := map[string]int{}
	for s := range seen {
		if f := strings.Fields(s); len(f) > 1 {
			versions[f[1]]++
		}
	}
	if versions["one"] == 0 {
		m.Errorf("requests saw only %v", versions)
	}
	if out, _ := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); !strings.Contains(out, " two ") {
		m.Errorf("after the update: %q", out)
	}
}

func scale(m *mesh) {
	if _, err := m.Client.Scale(m.Context(), "default", "web", 4); err != nil {
		m.Fatal(err)
	}
	perNode := map[string]int{}
	for _, p := range m.awaitReady("app=web", 4) {
		perNode[p.Spec.NodeName]++
	}
	if perNode["n1"] != 2 || perNode["n2"] != 2 {
		m.Errorf("four replicas on %v", perNode)
	}
	if _, err := m.Client.Scale(m.Context(), "default", "web", 1); err != nil {
		m.Fatal(err)
	}
	m.awaitReady("app=web", 1)
	// Applying the manifest again takes back what was changed by hand.
	m.applied(strings.Replace(webAndClient, "value: one", "value: two", 1))
	m.awaitReady("app=web", 2)
}

func podFeatures(m *mesh) {
	script := "#!/bin/sh\necho script of $POD on $NODE in $APP by $1\nexec sleep infinity\n"
	if err := os.WriteFile(filepath.Join(m.dir, "run.sh"), []byte(script), 0o755); err != nil {
		m.Fatal(err)
	}
	// A home that nobody else may enter: the pod sees the manifest's directory all the same.
	if err := os.Chmod(filepath.Dir(m.dir), 0o700); err != nil {
		m.Fatal(err)
	}
	m.applied(`
apiVersion: v1
kind: Pod
metadata: {name: rich, labels: {app: rich}}
spec:
  serviceAccountName: client
  initContainers:
  - {name: first, image: x, command: [sh, -c, "echo 1 > /tmp/order"]}
  - {name: second, image: x, command: [sh, -c, "test -e /tmp/tried || { touch /tmp/tried; exit 1; }; echo 2 >> /tmp/order"]}
  containers:
  - name: script
    image: x
    command: ["$(LATEEN_MANIFEST_DIR)/run.sh", "$(WHO)"]
    env:
    - {name: WHO, value: "$(POD)!"}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
  - name: beside
    image: x
    command: [lateen-helper, serve, "9999"]
    readinessProbe: {tcpSocket: {port: 9999}, periodSeconds: 1}
  - name: judged
    image: x
    command: [sleep, infinity]
    readinessProbe: {exec: {command: [grep, "2", /tmp/order]}, periodSeconds: 1}
`)
	m.awaitReady("app=rich", 1)
	if out, _ := m.exec("rich", "cat", "/tmp/order"); out != "1\n2\n" {
		m.Errorf("init containers wrote %q", out)
	}
	body, err := m.Client.Logs(m.Context(), api.LogsRequest{Target: "rich", Container: "script"})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); !regexp.MustCompile(`^script of rich on n[12] in rich by \$\(POD\)!\n$`).Match(b) {
		m.Errorf("log %q", b)
	}
	if out, _ := m.exec("rich", "lateen-helper", "get", "http://127.0.0.1:9999/"); !strings.HasPrefix(out, "rich ") {
		m.Errorf("containers do not share a network: %q", out)
	}
}

func brokenPods(m *mesh) {
	m.applied(`
apiVersion: v1
kind: Pod
metadata: {name: broken}
spec: {serviceAccountName: client, containers: [{name: c, image: x, command: [no-such-program]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: homeless}
spec: {serviceAccountName: client, nodeSelector: {moon: dark}, containers: [{name: c, image: x, command: [sleep, "1"]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: orphan}
spec:
  selector: {matchLabels: {app: orphan}}
  template:
    metadata: {labels: {app: orphan}}
    spec: {serviceAccountName: comes-later, containers: [{name: c, image: x, command: [sleep, infinity]}]}
`)
	m.eventually("reasons", func() error {
		why := map[string]string{}
		for _, p := range m.pods("") {
			why[p.Name] = p.Status.Message
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					why[p.Name] = "unscheduled: " + c.Message
				}
			}
			for _, c := range p.Status.ContainerStatuses {
				if c.State.Waiting != nil {
					why[p.Name] += c.State.Waiting.Reason + ": " + c.State.Waiting.Message
				}
			}
		}
		if !strings.Contains(why["broken"], `CrashLoopBackOff: command "no-such-program" is in none`) {
			return fmt.Errorf("broken: %q", why["broken"])
		}
		if !strings.Contains(why["homeless"], "unscheduled: no node has the labels moon=dark") {
			return fmt.Errorf("homeless: %q", why["homeless"])
		}
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "deploy", Name: "orphan"})
		if err != nil {
			return err
		}
		if !strings.Contains(string(list.Items[0].Raw), `ServiceAccount \"comes-later\" not found in namespace`) {
			return fmt.Errorf("orphan: %s", list.Items[0].Raw)
		}
		status, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for object, cause := range map[string]string{"Pod default/homeless": "moon=dark", "Deployment default/orphan": "comes-later"} {
			if !slices.ContainsFunc(status.Problems, func(p api.Problem) bool { return p.Object == object && strings.Contains(p.Message, cause) }) {
				return fmt.Errorf("status does not say why %s has no pods: %v", object, status.Problems)
			}
		}
		return nil
	})
	m.applied("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: comes-later}")
	m.awaitReady("app=orphan", 1)
	for _, k := range []api.Key{{Kind: "Pod", Namespace: "default", Name: "broken"}, {Kind: "Pod", Namespace: "default", Name: "homeless"}, {Kind: "Deployment", Namespace: "default", Name: "orphan"}} {
		if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{k}, Wait: true}); err != nil || len(res.Problems) > 0 {
			m.Errorf("%v: %+v, %v", k, res, err)
		}
	}
}

func enrolment(m *mesh) {
	ambient, going := modeAmbient, "go"
	ns := api.Key{Kind: "Namespace", Name: "default"}
	lives := func(pods []corev1.Pod) (list []string) {
		for _, p := range pods {
			list = append(list, fmt.Sprint(p.UID, " restarted ", p.Status.ContainerStatuses[0].RestartCount))
		}
		slices.Sort(list)
		return list
	}
	running := lives(m.awaitReady("app=web", 2))
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{wellknown.DataplaneMode: &ambient}); err != nil {
		m.Fatal(err)
	}
	m.applied("apiVersion: v1\nkind: Pod\nmetadata: {name: captive, labels: {app: captive}}\nspec: {serviceAccountName: client, containers: [{name: c, image: x, command: [sleep, infinity]}]}")
	m.eventually("the pod is held back and says why", func() error {
		s, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pods {
			if p.Name == "captive" && p.Enrolled && !p.Ready && strings.Contains(p.Reason, "waiting for the node's agent") {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Pods)
	})
	_, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: "captive", Command: []string{"true"}}, api.Streams{})
	if err == nil || !strings.Contains(err.Error(), "waiting") {
		m.Errorf("a command gets into a pod that is not captured yet: %v", err)
	}
	if now := lives(m.awaitReady("app=web", 2)); !slices.Equal(now, running) {
		m.Errorf("enrolment stops running pods: %v, then %v", running, now)
	}
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{"test/agent": &going}); err != nil {
		m.Fatal(err)
	}
	for _, p := range m.awaitReady("app=captive", 1) {
		if p.Annotations[wellknown.Redirection] != "enabled" {
			m.Errorf("annotations %v", p.Annotations)
		}
	}
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{wellknown.DataplaneMode: nil}); err != nil {
		m.Fatal(err)
	}
	m.eventually("released", func() error {
		for _, p := range m.pods("") {
			if p.Annotations[wellknown.Redirection] != "" {
				return fmt.Errorf("%s is still captured", p.Name)
			}
		}
		return nil
	})
}

// onNode is a pod in the network of node n1.
func onNode(name, ports string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", labels: {app: " + name + ", on: node}}\n" +
		"spec: {hostNetwork: true, nodeSelector: {kubernetes.io/hostname: n1}, containers: [{name: c, image: x, ports: [" + ports +
		"], command: [" + helperBinary + ", serve, \"18080\"], readinessProbe: {tcpSocket: {port: 18080}}}]}"
}

func hostNetwork(m *mesh) {
	for ports, fix := range map[string]string{
		"{containerPort: 15000}":                 "the node proxy, for its admin pages",
		"{containerPort: 15014}":                 "the node's agent",
		"{containerPort: 15020}":                 "the node proxy, for its metrics",
		"{containerPort: 15021}":                 "the node proxy, for its readiness",
		"{containerPort: 80}":                    "listen on a higher one",
		"{containerPort: 8080, hostPort: 18080}": "leave hostPort out",
	} {
		if res := m.apply(onNode("clash", ports)); len(res.Results) != 0 || len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Message, fix) {
			m.Errorf("%s: %+v", ports, res)
		}
	}
	_, err := m.Client.Patch(m.Context(), api.PatchRequest{Key: api.Key{Kind: "Deployment", Namespace: "default", Name: "client"},
		Patch: []byte(`{"spec":{"template":{"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"x","command":["sleep"],"ports":[{"containerPort":15020}]}]}}}}`)})
	if err == nil || !strings.Contains(err.Error(), "metrics") {
		m.Errorf("patched: %v", err)
	}
	res := m.apply(onNode("host", "{name: http, containerPort: 18080}"))
	if len(res.Results) != 1 || !slices.ContainsFunc(res.Results[0].Warnings, func(w string) bool { return strings.Contains(w, "never captured") }) {
		m.Errorf("nobody is told that it is never captured: %+v", res)
	}
	for _, p := range m.awaitReady("app=host", 1) {
		if p.Status.PodIP != "10.243.0.11" || p.Status.HostIP != p.Status.PodIP || p.Annotations[wellknown.Redirection] != "" {
			m.Errorf("status %+v, annotations %v", p.Status, p.Annotations)
		}
	}
	m.applied("apiVersion: v1\nkind: Service\nmetadata: {name: host}\nspec: {selector: {app: host}, ports: [{port: 80, targetPort: http}]}")
	m.eventually("a pod reaches it by its service", func() error {
		if out, _ := m.exec("deploy/client", helperBinary, "get", "http://host/"); !strings.HasPrefix(out, "n1 ") {
			return errors.New(out)
		}
		return nil
	})
	m.applied(onNode("second", "{containerPort: 18080}"))
	m.eventually("two pods cannot have one port of a node", func() error {
		s, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Problems {
			if p.Object == "Pod default/second" && strings.Contains(p.Message, "port 18080 of its network belongs to pod default/host") {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Problems)
	})
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Pod", Namespace: "default", Name: "host"}, {Kind: "Service", Namespace: "default", Name: "host"}}, Wait: true}); err != nil {
		m.Fatal(err)
	}
	m.awaitReady("app=second", 1)
	if s, err := m.Client.Status(m.Context()); err != nil || slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return p.Object == "Pod default/second" }) {
		m.Errorf("the complaint outlives its reason: %+v, %v", s.Problems, err)
	}
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Pod", Namespace: "default", Name: "second"}}, Wait: true}); err != nil {
		m.Fatal(err)
	}
	if _, err := inNode(m, "n1", "10.243.0.11:18080"); err == nil {
		m.Error("something of the pods is left in the node's network")
	}
	if out, code := m.exec("deploy/client", helperBinary, "get", "http://web/"); code != 0 {
		m.Errorf("the node's network did not outlive its pods: %s", out)
	}
}

// podNames looks at what a pod with a hostname and a subdomain is called, by itself and by others.
func podNames(m *mesh) {
	for field, name := range map[string]string{"hostname": "No_Name", "subdomain": "a.b"} {
		res := m.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {" + field + ": " + name + ", containers: [{name: c, image: x, command: [sleep, infinity]}]}")
		if len(res.Results) != 0 || len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Message, "spec."+field) {
			m.Errorf("%s: %+v", field, res)
		}
	}
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}\n"
	for _, name := range []string{"zero", "one"} {
		text += "---\napiVersion: v1\nkind: Pod\nmetadata: {name: db-" + name + ", labels: {app: db}}\nspec: {hostname: " + name +
			", subdomain: db, containers: [{name: c, image: x, command: [" + helperBinary + ", serve, \"8080\"]}]}\n"
	}
	m.applied(text)
	pods := m.awaitReady("app=db", 2)
	for _, name := range []string{"zero", "one"} {
		m.eventually("the pod is found by its own name", func() error {
			if out, _ := m.exec("deploy/client", helperBinary, "get", "http://"+name+".db:8080/"); !strings.HasPrefix(out, name+" ") {
				return errors.New(out)
			}
			return nil
		})
		full := name + ".db.default.svc.cluster.local"
		out, _ := m.exec("pod/db-"+name, "sh", "-c", "hostname; cat /etc/hosts; echo $HOSTNAME; if [ -e /etc/hostname ]; then cat /etc/hostname; else hostname; fi")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if lines[0] != name || !strings.Contains(out, "\t"+full+"\t"+name+"\n") || lines[len(lines)-1] != name || lines[len(lines)-2] != name {
			m.Errorf("pod db-%s is called\n%s", name, out)
		}
	}
	keys := []api.Key{{Kind: "Service", Namespace: "default", Name: "db"}}
	for _, p := range pods {
		keys = append(keys, api.Key{Kind: "Pod", Namespace: "default", Name: p.Name})
	}
	if _, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: keys, Wait: true}); err != nil {
		m.Fatal(err)
	}
}

func longNames(m *mesh) {
	ns, name := strings.Repeat("n", 63), strings.Repeat("x", 253)
	m.applied("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}")
	for _, kind := range []string{"ConfigMap", "Pod"} {
		text := "apiVersion: v1\nkind: " + kind + "\nmetadata: {namespace: " + ns + ", name: " + name + "}\n"
		if kind == "Pod" {
			text += "spec: {containers: [{name: c, image: x, command: [sleep, infinity]}]}"
		}
		m.applied(text)
	}
	m.eventually("a pod with a long name", func() error {
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "Pod", Namespace: ns})
		if err != nil || len(list.Items) != 1 || !strings.Contains(string(list.Items[0].Raw), `"Running"`) {
			return fmt.Errorf("%+v, %v", list, err)
		}
		return nil
	})
	if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Namespace", Name: ns}}, Wait: true}); err != nil || len(res.Problems) > 0 {
		m.Errorf("%+v, %v", res, err)
	}
}

func casualties(m *mesh) {
	before, err := m.Client.Status(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	for _, pid := range []int{before.Control.PID, before.Nodes[0].Agent.PID, before.Nodes[1].Proxy.PID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			m.Fatal(err)
		}
	}
	m.eventually("the parts of the mesh are back", func() error {
		now, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for name, p := range map[string][2]api.Process{
			"control": {before.Control.Process, now.Control.Process},
			"agent":   {before.Nodes[0].Agent.Process, now.Nodes[0].Agent.Process},
			"proxy":   {before.Nodes[1].Proxy.Process, now.Nodes[1].Proxy.Process},
		} {
			if p[1].Restarts != p[0].Restarts+1 || p[1].PID == p[0].PID || p[1].PID == 0 || !strings.Contains(p[1].LastExit, "signal 9") {
				return fmt.Errorf("%s was %+v, is %+v", name, p[0], p[1])
			}
		}
		if !now.Control.Ready || !now.Nodes[0].Agent.Ready || !now.Nodes[1].Proxy.Ready {
			return errors.New("not ready yet")
		}
		return nil
	})
	// A pod whose first process is killed is lost, and its Deployment makes another.
	lost := m.pods("app=client")[0].Name
	pid := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, d := range dirs {
		if b, err := os.ReadFile(d); err == nil && string(b) == "lateen\x00"+PodVerb+"\x00default/"+lost+"\x00" {
			pid, _ = strconv.Atoi(strings.Split(d, "/")[2])
		}
	}
	if pid == 0 {
		m.Fatalf("the first process of %s is not found", lost)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
	m.eventually("another pod", func() error {
		pods := m.pods("app=client")
		if len(pods) != 1 || pods[0].Name == lost || readyPods(pods) != 1 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
}

// inherited looks at the files that the engine has open: none may be a file of the test that the test let its children have.
func inherited(m *mesh) {
	dir := fmt.Sprintf("/proc/%d/fd", m.PID)
	fds, err := os.ReadDir(dir)
	if err != nil {
		m.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == strayFile {
			m.Errorf("file descriptor %s is %s", fd.Name(), target)
		}
	}
}
