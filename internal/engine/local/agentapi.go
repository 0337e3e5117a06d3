package local

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"lateen.dev/lateen/internal/engine/api"
)

// agentFeed tells agents of the pods of their nodes, and hears from them what they did. The state's lock guards watchers.
type agentFeed struct {
	state    *state
	dir      runDir
	watchers map[*watcher]struct{}
}

func newAgentFeed(s *state, dir runDir) *agentFeed {
	return &agentFeed{state: s, dir: dir, watchers: map[*watcher]struct{}{}}
}

// followed says whether an agent follows the pods of a node. The state's lock must be held.
func (f *agentFeed) followed(node string) bool {
	for w := range f.watchers {
		if w.node == node {
			return true
		}
	}
	return false
}

// serve streams the pods of a node to its agent: one line of JSON now and one after every change.
func (f *agentFeed) serve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("node")
	if f.state.nodes.named(name) == nil {
		fail(w, &api.Error{Code: http.StatusNotFound, Message: "there is no node " + name})
		return
	}
	me := &watcher{node: name, c: make(chan []byte, 1)}
	f.state.mu.Lock()
	me.last = f.snapshot(name)
	me.c <- me.last
	f.watchers[me] = struct{}{}
	f.state.mu.Unlock()
	defer func() {
		f.state.mu.Lock()
		delete(f.watchers, me)
		f.state.mu.Unlock()
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
func (f *agentFeed) serveRedirection(w http.ResponseWriter, r *http.Request) {
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
	f.state.update(func() {
		for _, p := range f.state.pods {
			if p.id.uid == uid {
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

// watcher is an agent that follows the pods of its node.
type watcher struct {
	node string
	last []byte
	c    chan []byte // the newest snapshot that it has not read yet
}

// tell hands every agent the present pods of its node if they changed. The state's lock must be held.
func (f *agentFeed) tell() {
	snapshots := map[string][]byte{}
	for w := range f.watchers {
		s, ok := snapshots[w.node]
		if !ok {
			s = f.snapshot(w.node)
			snapshots[w.node] = s
		}
		if bytes.Equal(s, w.last) {
			continue
		}
		w.last = s
		select { // only the newest counts
		case <-w.c:
		default:
		}
		w.c <- s
	}
}

// snapshot is what the agent of a node is to know: its pods that have a network, and all namespaces.
func (f *agentFeed) snapshot(nodeName string) []byte {
	s := struct {
		Pods       []agentPod                `json:"pods"`
		Namespaces map[string]agentNamespace `json:"namespaces"`
	}{[]agentPod{}, map[string]agentNamespace{}}
	for _, p := range f.state.pods {
		if p.id.node.name != nodeName || !p.network {
			continue
		}
		ns := f.dir.podNetNS(&p.id)
		if p.id.onNodesNetwork() {
			ns = "" // nobody is to do anything to a node's network on behalf of a pod
		}
		s.Pods = append(s.Pods, agentPod{
			UID: p.id.uid, Namespace: p.id.namespace, Name: p.id.name, ServiceAccount: p.id.serviceAccount(), IP: p.id.ip.String(),
			HostNetwork: p.id.spec.HostNetwork, Labels: p.labels, Annotations: p.annotations, NetNS: ns, Terminating: p.stopping, Ended: p.ended,
		})
	}
	slices.SortFunc(s.Pods, func(a, b agentPod) int { return bytes.Compare([]byte(a.UID), []byte(b.UID)) })
	for _, o := range f.state.store.list("Namespace") {
		s.Namespaces[o.Key.Name] = agentNamespace{o.labels()}
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic("a snapshot is always JSON: " + err.Error())
	}
	return b
}

type agentPod struct {
	UID            string            `json:"uid"`
	Namespace      string            `json:"namespace"`
	Name           string            `json:"name"`
	ServiceAccount string            `json:"serviceAccount"`
	IP             string            `json:"ip"`
	HostNetwork    bool              `json:"hostNetwork"`
	Labels         map[string]string `json:"labels"`
	Annotations    map[string]string `json:"annotations"`
	NetNS          string            `json:"netns"`
	Terminating    bool              `json:"terminating"`
	Ended          bool              `json:"ended"`
}

type agentNamespace struct {
	Labels map[string]string `json:"labels"`
}
