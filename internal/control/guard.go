package control

import (
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/ca"
)

// open are the pages that anybody who reaches the port may read: monitoring and the kubelet send no tokens.
var open = map[string]bool{"/metrics": true, "/ready": true, "/version": true}

// guard keeps all other pages to callers on this machine (in a pod: kubectl port-forward), and to those who prove an account that may
// follow the mesh's configuration in any case: the pages show all of it.
func guard(pages http.Handler, verifier ca.Verifier, accounts map[string]bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open[r.URL.Path] || onLoopback(r.RemoteAddr) {
			pages.ServeHTTP(w, r)
			return
		}
		caller, err := ca.Authenticate(metadata.NewIncomingContext(r.Context(), metadata.MD{"authorization": r.Header.Values("Authorization")}), verifier)
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, grpcstatus.Convert(err).Message()+"; or ask from the pod itself: kubectl port-forward", http.StatusUnauthorized)
		case !accounts[caller.Account()]:
			http.Error(w, "service account "+caller.Account()+" may not read this; ask from the pod itself: kubectl port-forward", http.StatusForbidden)
		default:
			pages.ServeHTTP(w, r)
		}
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
