//go:build kube

package installer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// asking is a container of which one field makes the kubelet connect to a host.
func asking(field, host string) corev1.Container {
	c := corev1.Container{Name: "web", Image: "none"}
	how, what, _ := strings.Cut(field, ".")
	if how == "lifecycle" {
		how, what, _ = strings.Cut(what, ".")
	}
	var http *corev1.HTTPGetAction
	var tcp *corev1.TCPSocketAction
	if what == "httpGet" {
		http = &corev1.HTTPGetAction{Host: host, Port: intstr.FromInt32(8080)}
	} else {
		tcp = &corev1.TCPSocketAction{Host: host, Port: intstr.FromInt32(8080)}
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: http, TCPSocket: tcp}}
	hook := &corev1.LifecycleHandler{HTTPGet: http, TCPSocket: tcp}
	switch how {
	case "livenessProbe":
		c.LivenessProbe = probe
	case "readinessProbe":
		c.ReadinessProbe = probe
	case "startupProbe":
		c.StartupProbe = probe
	case "postStart":
		c.Lifecycle = &corev1.Lifecycle{PostStart: hook}
	case "preStop":
		c.Lifecycle = &corev1.Lifecycle{PreStop: hook}
	}
	return c
}

// probeHosts is a cluster whose policy about hosts of probes is in force.
func probeHosts(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	c := installed(t)
	const namespace = "probe-hosts"
	_, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	made(t, err)
	_, err = c.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	made(t, err)
	eventually(t, "the policy is in force", func() error {
		if err := tried(t, c.Client, namespace, corev1.PodSpec{Containers: []corev1.Container{asking("livenessProbe.httpGet", "10.9.9.9")}}, nil); !refusesHost(err, "10.9.9.9") {
			return fmt.Errorf("a pod with a host in its probe was answered: %v", err)
		}
		return nil
	})
	return c.Client, namespace
}

// tried is what the API server answers to a pod that is not made.
func tried(t *testing.T, c kubernetes.Interface, namespace string, spec corev1.PodSpec, annotations map[string]string) error {
	t.Helper()
	no := false
	spec.AutomountServiceAccountToken = &no
	_, err := c.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asks", Annotations: annotations}, Spec: spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func refusesHost(err error, says string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'lateen-probe-hosts'") && strings.Contains(err.Error(), says)
}

func TestNoPodSaysWhomTheKubeletConnectsTo(t *testing.T) {
	c, namespace := probeHosts(t)
	plain := corev1.Container{Name: "plain", Image: "none"}
	for _, how := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"} {
		for _, what := range []string{"httpGet", "tcpSocket"} {
			field := how + "." + what
			says := "container 'web': " + field + ".host is '10.9.9.9'"
			if err := tried(t, c, namespace, corev1.PodSpec{Containers: []corev1.Container{plain, asking(field, "10.9.9.9")}}, nil); !refusesHost(err, says) || !strings.Contains(err.Error(), "leave host out") {
				t.Errorf("%s: %v", field, err)
			}
			always := corev1.ContainerRestartPolicyAlways
			beside := asking(field, "10.9.9.9")
			beside.RestartPolicy = &always
			if err := tried(t, c, namespace, corev1.PodSpec{Containers: []corev1.Container{plain}, InitContainers: []corev1.Container{beside}}, nil); !refusesHost(err, says) {
				t.Errorf("%s of an init container: %v", field, err)
			}
			for _, host := range []string{"", "localhost", "127.0.0.1", "127.9.8.7", "::1"} {
				if err := tried(t, c, namespace, corev1.PodSpec{Containers: []corev1.Container{asking(field, host)}}, nil); err != nil {
					t.Errorf("%s with host '%s': %v", field, host, err)
				}
			}
		}
	}
	for _, host := range []string{"web.shop", "web.shop.svc.cluster.local", "fd00::1", "1.127.0.0.1", "127.0.0.1.example.com", "localhost.example.com", "::ffff:10.9.9.9"} {
		if err := tried(t, c, namespace, corev1.PodSpec{Containers: []corev1.Container{asking("livenessProbe.httpGet", host)}}, nil); !refusesHost(err, host) {
			t.Errorf("host '%s': %v", host, err)
		}
	}
}

// A cache of the node's for DNS has an address of that sort, and its probe names it.
func TestAPodOnTheNodesNetworkMayAskALinkLocalAddress(t *testing.T) {
	c, namespace := probeHosts(t)
	containers := []corev1.Container{asking("livenessProbe.httpGet", "169.254.20.10")}
	if err := tried(t, c, namespace, corev1.PodSpec{Containers: containers, HostNetwork: true}, nil); err != nil {
		t.Errorf("on the node's network: %v", err)
	}
	if err := tried(t, c, namespace, corev1.PodSpec{Containers: containers}, nil); !refusesHost(err, "169.254.20.10") {
		t.Errorf("elsewhere: %v", err)
	}
	if err := tried(t, c, namespace, corev1.PodSpec{Containers: []corev1.Container{asking("livenessProbe.httpGet", "10.9.9.9")}, HostNetwork: true}, nil); !refusesHost(err, "10.9.9.9") {
		t.Errorf("another address: %v", err)
	}
}

// The kubelet shows a static pod by a mirror of it, whose probes name what the file on the node names: kubeadm has the API server's
// name the node's address. Nobody makes a pod that runs of one that the policy took for a mirror.
func TestMirrorPodsAreTakenAndStayMirrors(t *testing.T) {
	c, namespace := probeHosts(t)
	const mirror = "kubernetes.io/config.mirror"
	spec := corev1.PodSpec{Containers: []corev1.Container{asking("livenessProbe.httpGet", "10.0.0.7")}, NodeName: "none", HostNetwork: true}
	p, err := c.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{mirror: "x"}}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("a mirror pod: %v", err)
	}
	t.Cleanup(func() {
		now := int64(0)
		// The test's own context has ended by now.
		if err := c.CoreV1().Pods(namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+mirror+`":null}}}`), metav1.PatchOptions{}); err == nil {
		t.Error("the annotation could be taken away")
	}
}

func TestWhoeverAppliesWhatMakesPodsHearsOfIt(t *testing.T) {
	c, namespace := probeHosts(t)
	ctx, dry := t.Context(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	with := func(host string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{asking("readinessProbe.httpGet", host)}, RestartPolicy: corev1.RestartPolicyAlways}}
	}
	once := func(host string) corev1.PodTemplateSpec {
		template := with(host)
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return template
	}
	meta := metav1.ObjectMeta{Name: "web"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for kind, create := range map[string]func(host string) error{
		"Deployment": func(host string) error {
			_, err := c.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: with(host)}}, dry)
			return err
		},
		"ReplicaSet": func(host string) error {
			_, err := c.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: with(host)}}, dry)
			return err
		},
		"StatefulSet": func(host string) error {
			_, err := c.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: with(host)}}, dry)
			return err
		},
		"DaemonSet": func(host string) error {
			_, err := c.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: with(host)}}, dry)
			return err
		},
		"Job": func(host string) error {
			_, err := c.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once(host)}}, dry)
			return err
		},
		"CronJob": func(host string) error {
			_, err := c.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
				Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once(host)}}}}, dry)
			return err
		},
		"ReplicationController": func(host string) error {
			template := with(host)
			_, err := c.CoreV1().ReplicationControllers(namespace).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels, Template: &template}}, dry)
			return err
		},
		"PodTemplate": func(host string) error {
			_, err := c.CoreV1().PodTemplates(namespace).Create(ctx, &corev1.PodTemplate{ObjectMeta: meta, Template: with(host)}, dry)
			return err
		},
	} {
		if err := create("web.other"); !refusesHost(err, "container 'web': readinessProbe.httpGet.host is 'web.other'") {
			t.Errorf("%s: %v", kind, err)
		}
		if err := create(""); err != nil {
			t.Errorf("%s without a host: %v", kind, err)
		}
	}
}

// An object from before the policy goes on: its controller writes it, and its owner may scale it and take the host out.
func TestWhatNamedAHostBeforeCanBeWritten(t *testing.T) {
	c, namespace := probeHosts(t)
	ctx := t.Context()
	bindings := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	actions := func(action string) {
		t.Helper()
		if _, err := bindings.Patch(ctx, "lateen-probe-hosts", types.MergePatchType, []byte(`{"spec":{"validationActions":["`+action+`"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "old"}}
	old := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: corev1.PodSpec{Containers: []corev1.Container{asking("readinessProbe.httpGet", "web.other")}}}}}
	deployments := c.AppsV1().Deployments(namespace)
	actions("Audit")
	eventually(t, "one is there", func() error {
		_, err := deployments.Create(ctx, old, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := deployments.Delete(context.Background(), "old", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	actions("Deny")
	patch := func(text string) error {
		_, err := deployments.Patch(ctx, "old", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	container := func(more string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"web",` + more + `}]}}}}`
	}
	tries := 0
	eventually(t, "the policy is in force", func() error {
		// Another one each time: to name the same again changes nothing.
		tries++
		host := fmt.Sprint("web.", tries)
		if err := patch(container(`"readinessProbe":{"httpGet":{"host":"` + host + `"}}`)); !refusesHost(err, host) {
			return fmt.Errorf("it was answered: %v", err)
		}
		return nil
	})
	if err := patch(`{"spec":{"replicas":3}}`); err != nil {
		t.Errorf("scaled: %v", err)
	}
	if err := patch(container(`"image":"newer"`)); err != nil {
		t.Errorf("with another image: %v", err)
	}
	if err := patch(`{"spec":{"template":{"spec":{"containers":[{"name":"beside","image":"none"},{"name":"second","image":"none","readinessProbe":{"httpGet":{"port":80}}}]}}}}`); err != nil {
		t.Errorf("with other containers: %v", err)
	}
	if err := patch(`{"spec":{"template":{"spec":{"containers":[{"name":"beside","image":"none","readinessProbe":{"httpGet":{"host":"web.other","port":80}}}]}}}}`); !refusesHost(err, "'beside': readinessProbe.httpGet.host is 'web.other'") {
		t.Errorf("with the host in another container: %v", err)
	}
	if err := patch(container(`"livenessProbe":{"httpGet":{"host":"web.third","port":80}}`)); !refusesHost(err, "livenessProbe.httpGet.host is 'web.third'") {
		t.Errorf("with another host: %v", err)
	}
	if err := patch(container(`"readinessProbe":{"httpGet":{"host":""}}`)); err != nil {
		t.Errorf("without the host: %v", err)
	}
	if err := patch(container(`"readinessProbe":{"httpGet":{"host":"web.other"}}`)); !refusesHost(err, "web.other") {
		t.Errorf("with the host again: %v", err)
	}
}
