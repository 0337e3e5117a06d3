package local

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/wirecap"
)

const maxCapture = 600 // seconds

func captureTime(r *http.Request) (time.Duration, error) {
	n, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil || n < 1 || n > maxCapture {
		return 0, &api.Error{Code: http.StatusBadRequest, Message: "capture for 1 to " + strconv.Itoa(maxCapture) + " seconds"}
	}
	return time.Duration(n) * time.Second, nil
}

// capturer answers requests for what crosses the nodes' links to the fabric. Its fields never change; the state's lock guards the
// places of addresses.
type capturer struct {
	state *state
	log   *slog.Logger
}

func newCapturer(s *state, log *slog.Logger) *capturer { return &capturer{state: s, log: log} }

// serve captures for a while and answers with the connections that it saw.
func (c *capturer) serve(r *http.Request) (any, error) {
	d, err := captureTime(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	began := time.Now()
	a := wirecap.NewAnalyser()
	dropped, err := wirecap.Capture(ctx, c.state.nodes.ports(), func(_ time.Time, b []byte) { a.Add(b) })
	if err != nil {
		return nil, err
	}
	rep := api.CaptureReport{Seconds: time.Since(began).Seconds(), Packets: a.Packets(), Dropped: dropped, Connections: []api.CapturedConn{}}
	place := c.state.places()
	podsOnly := r.URL.Query().Get("podsOnly") == "true"
	for _, c := range a.Connections() {
		if podsOnly && (!ofPod(c.Src) || !ofPod(c.Dst)) {
			continue
		}
		src, dst := place(c.Src), place(c.Dst)
		c.SrcNode, c.SrcPod, c.DstNode, c.DstPod = src.node, src.pod, dst.node, dst.pod
		rep.Connections = append(rep.Connections, c)
	}
	return rep, nil
}

// ofPod says whether an address is a pod's, tunnels included: those run between pods' addresses.
func ofPod(hostport string) bool {
	a, err := netip.ParseAddrPort(hostport)
	return err == nil && fabric.FamilyOf(a.Addr()).PodsCIDR.Contains(a.Addr())
}

type location struct{ node, pod string }

// places tells to whom an address belongs right now.
func (s *state) places() func(hostport string) location {
	s.mu.Lock()
	defer s.mu.Unlock()
	byIP := map[netip.Addr]location{}
	for _, n := range s.nodes {
		for _, ip := range n.IPs() {
			byIP[ip] = location{node: n.name}
		}
	}
	for _, p := range s.pods {
		if p.id.onNodesNetwork() {
			continue // the address is the node's
		}
		for _, ip := range p.id.ips {
			byIP[ip] = location{p.id.node.name, p.id.namespace + "/" + p.id.name}
		}
	}
	return func(hostport string) location {
		a, err := netip.ParseAddrPort(hostport)
		if err != nil {
			return location{}
		}
		return byIP[a.Addr()]
	}
}

// servePcap streams the captured packets in the format of pcap.
func (c *capturer) servePcap(w http.ResponseWriter, r *http.Request) {
	d, err := captureTime(r)
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	defer cancel()
	w.Header().Set("Content-Type", "application/vnd.tcpdump.pcap")
	buffered := bufio.NewWriterSize(w, 1<<20)
	file, err := wirecap.NewPcapWriter(buffered)
	if err != nil {
		return
	}
	_, err = wirecap.Capture(ctx, c.state.nodes.ports(), func(at time.Time, b []byte) {
		if file.Write(at, b) != nil {
			cancel()
		}
	})
	if err != nil {
		c.log.Warn("capture ended", "err", err)
	}
	_ = buffered.Flush()
}
