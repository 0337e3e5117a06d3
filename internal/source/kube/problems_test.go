package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

func TestALongProblemIsCutShort(t *testing.T) {
	api := newAPIServer(t)
	api.definePolicies("v1")
	var blocks []string
	for i := range 2000 {
		blocks = append(blocks, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 400)))
	}
	long := denial(strings.Repeat("é", 1<<19))
	long["spec"].(object)["rules"] = append(long["spec"].(object)["rules"].([]object), object{"from": []object{{"source": object{"ipBlocks": blocks}}}})
	long["spec"].(object)["selector"] = object{"matchLabels": object{strings.Repeat("k", 1<<17): "v"}}
	api.put(policies, long)
	c := follow(t, api).loaded()
	size := 0
	problems := c.source.Problems()
	for _, p := range problems {
		size += len(p.Error())
	}
	if len(problems) < 10 || len(problems) > 40 || size > 40<<10 {
		t.Errorf("%d problems of %d bytes", len(problems), size)
	}
	if !strings.Contains(fmt.Sprint(problems), "more of the kind") {
		t.Error("nobody is told that there are more")
	}
	if n := len(c.logged()); n > 80<<10 {
		t.Errorf("the log got %d bytes", n)
	}
	if r := c.source.Refused(); len(r) != 1 || len(r[0].Condition.Message) > 40<<10 {
		t.Error("the condition is not bounded")
	}
}

// A pod that never runs may have a million bytes of labels, and each replica would keep them.
func TestAPodWithMoreLabelsThanAreKeptIsNoWorkload(t *testing.T) {
	api := newAPIServer(t)
	api.put("pods", podObject("a", "10.0.0.1"))
	c := follow(t, api).loaded()
	if !c.seen("a") {
		t.Fatal("the pod is not there")
	}
	large := podObject("a", "10.0.0.1")
	labels := object{}
	for i := range 700 {
		labels[fmt.Sprintf("l%d", i)] = strings.Repeat("v", 63)
	}
	large["metadata"].(object)["labels"] = labels
	api.put("pods", large)
	eventually(t, "it is a workload with as many", func() bool {
		o := c.get(model.PodKey("shop", "a"))
		return o != nil && len(o.Value.(*corev1.Pod).Labels) == 700
	})
	for i := range 1000 {
		labels[fmt.Sprintf("m%d", i)] = strings.Repeat("v", 63)
	}
	api.put("pods", large)
	// It does not stay as it was: its address may be another's soon.
	eventually(t, "it is none", func() bool { return c.get(model.PodKey("shop", "a")) == nil })
	if text := fmt.Sprint(c.source.Problems()); !strings.Contains(text, "shop/a") || !strings.Contains(text, "are kept") {
		t.Errorf("told: %s", text)
	}
	api.put("pods", podObject("a", "10.0.0.1"))
	eventually(t, "it is one again", func() bool { return c.get(model.PodKey("shop", "a")) != nil && len(c.source.Problems()) == 0 })
}
