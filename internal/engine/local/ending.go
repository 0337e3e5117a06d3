package local

import (
	"fmt"

	"lateen.dev/lateen/internal/engine/api"
)

// counted is a number of things for people.
func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// down ends the mesh in order.
func (e *Engine) down(progress func(api.Event)) {
	e.state.mu.Lock()
	e.state.stopping = true
	pods := append([]*pod(nil), e.state.pods...)
	for _, p := range pods {
		p.stop()
	}
	e.state.mu.Unlock()
	step := func(phase, doing, done string, act func()) {
		progress(api.Event{Phase: phase, State: api.EventStarted, Message: doing})
		act()
		progress(api.Event{Phase: phase, State: api.EventDone, Message: done})
	}
	step("pods", "ending the pods", counted(len(pods), "pod", "pods")+" ended", func() {
		for _, p := range pods {
			<-p.done
		}
	})
	step("agents", "ending the agents", "agents ended", func() { e.state.nodes.stopAll(func(n *node) *daemon { return n.agent }) })
	step("proxies", "ending the node proxies", "node proxies ended", func() { e.state.nodes.stopAll(func(n *node) *daemon { return n.proxy }) })
	step("control", "ending the control plane", "control plane ended", func() {
		if e.daemons.control != nil {
			e.daemons.control.stop(stopTimeout)
		}
	})
	progress(api.Event{Phase: "engine", State: api.EventDone, Message: "network and namespaces are gone"})
	e.quit()
}
