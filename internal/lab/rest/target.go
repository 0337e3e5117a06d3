package rest

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// setTarget reads where to send requests. A URL without a scheme gets the runner's, as in Fortio.
func (r *Request) setTarget() error {
	if r.URL == "" {
		return &Refusal{Message: "URL is required", Key: "url", Advice: "write where the load is to go, such as http://127.0.0.1:8080/"}
	}
	switch r.Runner {
	case "", runnerHTTP, runnerGRPC, runnerTCP:
	case "udp":
		return refusef("runner", "udp is not offered: use http, grpc or tcp")
	default:
		return refusef("runner", "%q: use http, grpc or tcp", r.Runner)
	}
	text, asked := r.URL, r.Runner
	bare := !strings.Contains(text, "://")
	if bare {
		text = map[string]string{"": "http", runnerHTTP: "http", runnerGRPC: "grpc", runnerTCP: "tcp"}[r.Runner] + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return &Refusal{Message: "parsing url", Cause: errors.New(strings.TrimPrefix(err.Error(), "parse ")), Key: "url", Advice: strconv.Quote(r.URL) + " is not a URL: write for example http://127.0.0.1:8080/"}
	}
	u.Scheme = strings.ToLower(u.Scheme)
	// Fortio takes http:// and https:// for gRPC, where they tell whether there is TLS.
	if r.Runner == runnerGRPC {
		switch u.Scheme {
		case "http":
			u.Scheme = "grpc"
		case "https":
			u.Scheme = "grpcs"
		}
		if u.Scheme == "grpc" && r.GRPC.Secure {
			u.Scheme = "grpcs"
		}
	}
	of, known := map[string]string{"http": runnerHTTP, "https": runnerHTTP, "grpc": runnerGRPC, "grpcs": runnerGRPC, "tcp": runnerTCP}[u.Scheme]
	switch {
	case !known:
		return refusef("url", "%s:// is no target for load: use http, https, grpc, grpcs or tcp", u.Scheme)
	case r.Runner != "" && r.Runner != of && !(r.Runner == runnerHTTP && of == runnerTCP):
		return refusef("url", "%s:// does not go with runner=%s", u.Scheme, r.Runner)
	case u.User != nil:
		return refusef("url", "a user in the URL would be stored with the result: send a field Authorization instead")
	case u.Hostname() == "":
		return refusef("url", "%q names no host", r.URL)
	case of == runnerTCP && u.Port() == "":
		return refusef("url", "%q names no port", r.URL)
	}
	if of == runnerGRPC && bare && u.Port() == "" {
		u.Host += ":" + fortioGRPCPort
	}
	u.Fragment, u.RawFragment = "", ""
	r.Runner, r.Target = of, u
	return r.setMethod(asked)
}

const (
	fortioGRPCPort = "8079"
	healthMethod   = "/grpc.health.v1.Health/Check"
)

// setMethod chooses what a gRPC run calls: what the URL names, else Fortio's Ping, which the generator takes by itself. Where
// the runner was named, it is Fortio's default, the health check, unless ping is on.
func (r *Request) setMethod(runner string) error {
	g := &r.GRPC
	switch {
	case g.PingDelay > 0:
		return refusef("grpc-ping-delay", "the generator's pings ask for no delay: let the server delay its answers by itself")
	case g.Service != "":
		return refusef("healthservice", "the generator asks for the health of the whole server alone: leave the key out")
	case r.Runner != runnerGRPC || strings.Trim(r.Target.Path, "/") != "":
		return nil
	}
	r.Target.Path = ""
	if runner == runnerGRPC && !g.Ping {
		r.Target.Path = healthMethod
	}
	return nil
}

func (r *Request) setResolve(text string) error {
	if text == "" {
		return nil
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return refusef("resolve", "%q is not an IP address", text)
	}
	r.Resolve = ip
	return nil
}

// checkProtocol refuses what the target's protocol has no place for.
func (r *Request) checkProtocol() error {
	if r.Runner == runnerHTTP {
		return nil
	}
	switch {
	case r.H2:
		return refusef("h2", "%s:// is no HTTP", r.Target.Scheme)
	case r.Method != "":
		return refusef("X", "%s:// has no methods", r.Target.Scheme)
	case r.Runner == runnerTCP && len(r.Headers) > 0:
		return refusef("headers", "tcp:// has no fields")
	}
	return nil
}

// reached is the URL that the generator gets: with resolve, the address stands in it and the name in a field.
func (r *Request) reached() (target string, fields []string) {
	if !r.Resolve.IsValid() {
		return r.Target.String(), nil
	}
	u := *r.Target
	host := r.Target.Host
	if port := u.Port(); port != "" {
		u.Host = net.JoinHostPort(r.Resolve.String(), port)
	} else if r.Resolve.Is6() {
		u.Host = "[" + r.Resolve.String() + "]"
	} else {
		u.Host = r.Resolve.String()
	}
	for _, field := range r.Headers {
		if name, _, _ := strings.Cut(field, ":"); strings.EqualFold(name, "host") {
			return u.String(), nil
		}
	}
	if r.Runner == runnerTCP {
		return u.String(), nil
	}
	return u.String(), []string{"Host: " + host}
}
