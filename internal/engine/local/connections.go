package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// serveConnections passes on what a node's proxy says about its connections, for as long as it has something to say and
// somebody listens. A process that drains after its replacement has things to say for hours: the answer then ends, and whoever
// asks again hears its successor.
func (l nodeList) serveConnections(w http.ResponseWriter, r *http.Request) {
	n, err := l.of(r)
	if err != nil {
		fail(w, err)
		return
	}
	if n.program().ztunnel {
		fail(w, &api.Error{Code: http.StatusNotImplemented, Message: "the node proxy of " + n.name + " is not Lateen's own and does not tell of its connections",
			Fix: "see its log with `lateen logs proxy/" + n.name + "`"})
		return
	}
	moves := n.proxy.moves() // before it is known whose page it is
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	body, err := askConnections(ctx, n, r.URL.RawQuery)
	if err != nil {
		fail(w, &api.Error{Code: http.StatusBadGateway, Message: "ask on node " + n.name + ": " + err.Error(), Fix: "see `lateen status`"})
		return
	}
	defer body.Close()
	go func() {
		select {
		case <-moves:
			cancel()
		case <-ctx.Done():
		}
	}()
	flush := http.NewResponseController(w)
	part := make([]byte, 32<<10)
	for {
		count, err := body.Read(part)
		if count > 0 {
			if _, err := w.Write(part[:count]); err != nil || flush.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// askConnections opens the page of a node's proxy. Closing the body ends the watch.
func askConnections(ctx context.Context, n *node, query string) (io.ReadCloser, error) {
	t := &http.Transport{DisableKeepAlives: true, DialContext: n.dialProxy(proxyAdmin)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxyAdmin+"/connections?"+query, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, fmt.Errorf("it answered %s: %s", resp.Status, strings.TrimSpace(string(said)))
	}
	return resp.Body, nil
}
