package rest

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// guard decides who may ask at all. A server that starts load and is reached at 127.0.0.1 is within reach of every page that a
// browser on this machine shows: a request must be made for this server (Host, against DNS rebinding) and by itself or by no
// page (Origin and its like). Beyond loopback it must have the token as well.
type guard struct {
	// hosts are names that this server may be asked for, besides its addresses and localhost, as HostName writes them.
	hosts []string
	// token is empty where none is needed.
	token string
}

// cookie carries the token's proof in a browser.
const cookie = "lateen-lab"

// HostName reads a name or an address, without a port, that a server may be asked for. Addresses that lead to a listener without
// being its own are none.
func HostName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(strings.Trim(text, "[]"), "."))
	address, err := netip.ParseAddr(name)
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case err != nil:
		return name, nil
	// 0.0.0.0 and ::ffff:127.0.0.1 lead to this machine as well, but browsers take them for foreign machines without TLS: to these
	// they do not say what page a request comes from.
	case address.IsUnspecified() || address.Is4In6():
		return "", errors.New("no machine's own address, and browsers hide which page asks for it: use another address or a name")
	}
	return address.WithZone("").String(), nil
}

// hostAllowed tells whether a Host field names this server: a loopback address, the address at which the connection arrived, or
// a name that was given. No other address does, even if it leads here.
func (g *guard) hostAllowed(host string, arrived netip.Addr) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	name, err := HostName(host)
	if err != nil {
		return false
	}
	if address, err := netip.ParseAddr(name); err == nil && (address.IsLoopback() || address == arrived) {
		return true
	}
	return name == "localhost" || slices.Contains(g.hosts, name)
}

// arrivedAt is this machine's address of a request's connection; the zero one where there is no connection.
func arrivedAt(r *http.Request) netip.Addr {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// ownRequest tells whether a request comes from a page of this server or from no page. A link from elsewhere may open a page.
func ownRequest(r *http.Request, isPage bool) bool {
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		return isPage && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	for _, name := range []string{"Origin", "Referer"} {
		from := r.Header.Get(name)
		if from == "" || isPage && name == "Referer" {
			continue
		}
		if u, err := url.Parse(from); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	return true
}

// silentBrowser tells whether a request comes from a browser that does not say of which page. Browsers leave Sec-Fetch out for
// names that they do not trust, and a page can have them leave out the Referer; the User-Agent it cannot change without asking.
func silentBrowser(r *http.Request) bool {
	return strings.HasPrefix(r.UserAgent(), "Mozilla/") && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" && r.Header.Get("Referer") == ""
}

// acts lets only requests through that may do something by GET: what asks for a head alone must not begin a run, nor what could
// be a picture of another site's page. A token is proof enough: browsers keep its cookie from other sites.
func (g *guard) acts(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodPut:
			refuse(w, http.StatusMethodNotAllowed, &Refusal{Message: "method not allowed", Cause: errors.New("use GET or POST")})
		case g.token == "" && silentBrowser(r):
			turnAway(w, http.StatusForbidden, "forbidden", "the browser does not say which page asks: use the server's page or a newer browser; a script sends another User-Agent")
		default:
			next(w, r)
		}
	}
}

// refusedTime bounds what a refused caller may still send; the answer is out before.
const refusedTime = 2 * time.Second

// turnAway refuses a caller and ends his connection, whatever of his request is missing.
func turnAway(w http.ResponseWriter, code int, message, cause string) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime)) // a recorder in a test has none
	refuse(w, code, &Refusal{Message: message, Cause: errors.New(cause)})
}

// proof is what a browser keeps instead of the token.
func (g *guard) proof() string {
	mac := hmac.New(sha256.New, []byte(g.token))
	_, _ = mac.Write([]byte("lateen lab serve: cookie")) // a hash takes everything
	return hex.EncodeToString(mac.Sum(nil))
}

// known tells whether a request has the token, where one is needed.
func (g *guard) known(r *http.Request) bool {
	if g.token == "" {
		return true
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return g.isToken(token)
	}
	c, err := r.Cookie(cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.proof())) == 1
}

func (g *guard) isToken(text string) bool {
	// Of equal length, so that the time says nothing about the token's.
	want, got := sha256.Sum256([]byte(g.token)), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// policy lets a page load what this server has, and nothing else; nobody may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// wrap puts the guard before a handler. Pages themselves hold nothing secret: they may be opened without the token.
func (g *guard) wrap(isPage bool, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", policy)
		switch {
		case !g.hostAllowed(r.Host, arrivedAt(r)):
			turnAway(w, http.StatusForbidden, "forbidden", "the request names another host: use the server's address, or start it with --host NAME")
		case !ownRequest(r, isPage):
			turnAway(w, http.StatusForbidden, "forbidden", "the request comes from another site's page")
		case !isPage && !g.known(r):
			h.Set("WWW-Authenticate", "Bearer")
			turnAway(w, http.StatusUnauthorized, "unauthorized", "send the server's token: Authorization: Bearer TOKEN")
		default:
			next(w, r)
		}
	}
}

// login exchanges the token for a cookie.
func (g *guard) login(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if g.token != "" && (!ok || !g.isToken(token)) {
		turnAway(w, http.StatusUnauthorized, "unauthorized", "that is not the server's token")
		return
	}
	if g.token != "" {
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: g.proof(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	}
	w.WriteHeader(http.StatusNoContent)
}
