package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// The API server lets a kubelet write Running into the status of a pod that has ended.
func TestAPodThatHasEndedStaysEnded(t *testing.T) {
	for _, ended := range []string{"Succeeded", "Failed"} {
		api := newAPIServer(t)
		in := func(phase, ip string) object {
			o := podObject("a", ip)
			o["status"].(object)["phase"] = phase
			return o
		}
		api.put("pods", in(ended, "10.0.0.1"))
		c := follow(t, api).loaded()
		kept := func() *corev1.Pod {
			if o := c.get(model.PodKey("shop", "a")); o != nil {
				return o.Value.(*corev1.Pod)
			}
			return &corev1.Pod{}
		}
		for _, v := range []struct{ phase, ip string }{{"Running", "10.0.0.2"}, {"Pending", "10.0.0.3"}, {"Running", "10.0.0.4"}} {
			api.put("pods", in(v.phase, v.ip))
			eventually(t, "the version with "+v.ip, func() bool { return kept().Status.PodIP == v.ip })
			if got := kept().Status.Phase; string(got) != ended {
				t.Errorf("%s was written over %s, and it counts as %s", v.phase, ended, got)
			}
		}
		// A list after a break tells it, too.
		address := api.addr
		api.stop()
		eventually(t, "the break is noticed", func() bool { return c.source.Note() != "" })
		api.put("pods", in("Running", "10.0.0.5"))
		api.start(address)
		eventually(t, "the version that was written meanwhile", func() bool { return kept().Status.PodIP == "10.0.0.5" })
		if got := kept().Status.Phase; string(got) != ended {
			t.Errorf("after a list %s counts as %s", ended, got)
		}

		// Another pod of the name is another pod.
		api.delete("pods", "shop", "a")
		api.put("pods", in("Running", "10.0.0.6"))
		eventually(t, "the next pod", func() bool { return kept().Status.PodIP == "10.0.0.6" })
		if got := kept().Status.Phase; got != corev1.PodRunning {
			t.Errorf("the next pod of the name counts as %s", got)
		}
	}
}

// A node that shuts down says of its static pods that they have failed. When it is back it says that they run, and they are the same objects.
func TestAStaticPodRunsAgainWithItsNode(t *testing.T) {
	api := newAPIServer(t)
	in := func(phase, ip string) object {
		o := podObject("a", ip)
		o["metadata"].(object)["annotations"] = object{"kubernetes.io/config.mirror": "x"}
		o["status"].(object)["phase"] = phase
		return o
	}
	api.put("pods", in("Failed", "10.0.0.1"))
	c := follow(t, api).loaded()
	api.put("pods", in("Running", "10.0.0.2"))
	var kept corev1.Pod
	eventually(t, "the version after the start", func() bool {
		if o := c.get(model.PodKey("shop", "a")); o != nil {
			kept = *o.Value.(*corev1.Pod)
		}
		return kept.Status.PodIP == "10.0.0.2"
	})
	if kept.Status.Phase != corev1.PodRunning {
		t.Errorf("it counts as %s", kept.Status.Phase)
	}
}
