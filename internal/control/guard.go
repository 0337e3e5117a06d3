package control

import (
	"net"
	"net/http"
	"net/netip"
)

// open are the pages that anybody who reaches the port may read: monitoring and the kubelet come over the network.
var open = map[string]bool{"/metrics": true, "/ready": true, "/version": true}

// guard keeps all other pages, which show the whole mesh, to callers on this machine's loopback: in a pod, to kubectl port-forward. The port is served
// in clear, so that no token may be asked for there. Both ends of the connection must be loopback: where a kernel routes
// 127.0.0.0/8 (net.ipv4.conf.*.route_localnet), a neighbour reaches that address, too.
func guard(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if open[r.URL.Path] || own != nil && onLoopback(own.String()) && onLoopback(r.RemoteAddr) {
			pages.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this page is for callers on loopback; ask by kubectl port-forward, or on the machine itself", http.StatusForbidden)
	})
}

func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
