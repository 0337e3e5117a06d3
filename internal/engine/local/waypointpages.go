package local

import (
	"context"
	"net"
	"net/http"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/model/wellknown"
)

// serveConnections passes on what a waypoint's pod says about the connections of its clients.
func (a *podAccess) serveConnections(w http.ResponseWriter, r *http.Request) {
	p, err := a.waypointPod(r)
	if err != nil {
		fail(w, err)
		return
	}
	namespace := a.dir.podNetNS(&p.id)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return netns.Dial(ctx, namespace, "tcp4", proxyAdmin, nil)
	}
	page, err := get(r.Context(), dial, "http://"+proxyAdmin+"/connections?"+r.URL.RawQuery)
	if err != nil {
		fail(w, &api.Error{Code: http.StatusBadGateway, Message: "ask pod " + p.id.name + ": " + err.Error(), Fix: "see its log with `lateen logs " + p.id.name + " -n " + p.id.namespace + "`"})
		return
	}
	_, _ = w.Write(page) // the asker may be gone
}

// waypointPod is the running pod of a waypoint that a request names. Another pod may have anything on the port of the pages.
func (a *podAccess) waypointPod(r *http.Request) (*pod, error) {
	a.state.mu.Lock()
	defer a.state.mu.Unlock()
	p, _, err := a.targetSteered(r.Context(), r.PathValue("namespace"), "pod/"+r.PathValue("pod"))
	if err != nil {
		return nil, err
	}
	if p.labels[wellknown.GatewayName] == "" {
		return nil, api.NoWaypoint(p.id.namespace, p.id.name)
	}
	return p, p.stillThere()
}
