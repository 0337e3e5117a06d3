package local

import (
	"net/http"
	"slices"

	"lateen.dev/lateen/internal/engine/api"
)

// serveAgentPods streams the pods of a node to its agent: one line of JSON now and one after every change.
func (e *Engine) serveAgentPods(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("node")
	if e.state.nodes.named(name) == nil {
		fail(w, &api.Error{Code: http.StatusNotFound, Message: "there is no node " + name})
		return
	}
	me := &watcher{node: name, c: make(chan []byte, 1)}
	e.state.mu.Lock()
	me.last = e.agentSnapshot(name)
	me.c <- me.last
	e.watchers[me] = struct{}{}
	e.state.mu.Unlock()
	defer func() {
		e.state.mu.Lock()
		delete(e.watchers, me)
		e.state.mu.Unlock()
	}()
	flush := http.NewResponseController(w)
	for {
		select {
		case s := <-me.c:
			if _, err := w.Write(append(slices.Clone(s), '\n')); err != nil {
				return
			}
			if err := flush.Flush(); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// serveRedirection hears from an agent what it did with a pod.
func (e *Engine) serveRedirection(w http.ResponseWriter, r *http.Request) {
	var in struct {
		State string `json:"state"`
		Error string `json:"error"`
	}
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if in.State != "enabled" && in.State != "disabled" && in.State != "parted" {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "redirection is enabled, disabled, or parted once a pod has ended"})
		return
	}
	uid := r.PathValue("uid")
	found := false
	e.state.update(func() {
		for _, p := range e.state.pods {
			if p.uid == uid {
				found = true
				if in.State == "parted" {
					// Peers go on to know the pod as captured: nobody is to dial it in clear in its last moment.
					if p.ended && !closed(p.parted) {
						close(p.parted)
					}
					continue
				}
				p.redirection = redirection{enabled: in.State == "enabled", err: in.Error}
				p.wake()
			}
		}
	})
	if !found {
		fail(w, &api.Error{Code: http.StatusNotFound, Message: "there is no pod with uid " + uid})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
