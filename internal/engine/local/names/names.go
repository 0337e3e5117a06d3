// Package names answers DNS questions about the services of a local mesh. It forwards nothing: a local mesh has no way out,
// so that a name it does not know does not exist.
package names

import (
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"lateen.dev/lateen/internal/engine/local/services"
)

// Domain is the cluster's domain, absolute.
const Domain = "cluster.local."

// ttl is how long an answer may be kept, in seconds, as in Kubernetes.
const ttl = 5

// Zone is a snapshot of what there is to know. Its zero value knows nothing.
type Zone struct {
	services   map[string][]services.Service // by absolute lower-case name; one for each family
	namespaces map[string]bool               // by absolute lower-case name of their zone
	hosts      map[string][]netip.Addr       // by absolute lower-case name: pods with a name below their service's
	reverse    map[netip.Addr]string         // names for reverse questions
	resolver   netip.Addr
}

// NewZone makes a snapshot.
func NewZone(svcs []services.Service, resolver netip.Addr) *Zone {
	z := &Zone{services: map[string][]services.Service{}, namespaces: map[string]bool{}, hosts: map[string][]netip.Addr{}, reverse: map[netip.Addr]string{}, resolver: resolver}
	for _, s := range svcs {
		name := strings.ToLower(s.Name + "." + s.Namespace + ".svc." + Domain)
		z.services[name] = append(z.services[name], s)
		z.namespaces[strings.ToLower(s.Namespace+".svc."+Domain)] = true
		if s.ClusterIP.IsValid() {
			z.reverse[s.ClusterIP] = name
		}
		for _, h := range s.Hosts {
			own := strings.ToLower(h.Name) + "." + name
			z.hosts[own] = append(z.hosts[own], h.Addr)
			if _, taken := z.reverse[h.Addr]; !taken {
				z.reverse[h.Addr] = own
			}
		}
	}
	return z
}

// Answer answers one message. It never fails: what cannot be answered gets a response code that says why.
func (z *Zone) Answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	m.RecursionAvailable = true // so that resolvers do not complain; names outside do not exist here
	switch {
	case q.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
		return m
	case len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET:
		m.Rcode = dns.RcodeRefused
		return m
	}
	question := q.Question[0]
	name := strings.ToLower(dns.Fqdn(question.Name))
	if ip, ok := reversed(name); ok {
		z.answerReverse(m, question, ip)
		return m
	}
	if ips, ok := z.hosts[name]; ok {
		z.answerAddresses(m, question, ips)
		return m
	}
	svc, portName, protocol, found := z.lookup(name)
	switch {
	case !found:
		if !z.exists(name) {
			m.Rcode = dns.RcodeNameError
		}
		z.addSOA(m)
	case svc[0].External != "":
		m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(question.Name, dns.TypeCNAME), Target: dns.Fqdn(svc[0].External)})
	case (question.Qtype == dns.TypeA || question.Qtype == dns.TypeAAAA) && portName == "":
		z.answerAddresses(m, question, addresses(svc))
		return m
	case question.Qtype == dns.TypeSRV:
		for _, p := range svc[0].Ports {
			if portName != "" && (p.Name != portName || !strings.EqualFold(string(p.Protocol), protocol)) {
				continue
			}
			for _, t := range targets(svc, p) {
				m.Answer = append(m.Answer, &dns.SRV{Hdr: header(question.Name, dns.TypeSRV), Weight: 100, Port: t.port, Target: t.name})
			}
		}
	}
	if found && len(m.Answer) == 0 {
		// The name exists without such a record: questions for a family that it lacks end here, fast.
		z.addSOA(m)
	}
	return m
}

// answerAddresses answers with the addresses of the family that was asked for. Without any, the name exists without such a
// record: questions for a family that it lacks end there, fast.
func (z *Zone) answerAddresses(m *dns.Msg, q dns.Question, ips []netip.Addr) {
	for _, ip := range ips {
		switch {
		case q.Qtype == dns.TypeA && ip.Is4():
			m.Answer = append(m.Answer, &dns.A{Hdr: header(q.Name, dns.TypeA), A: ip.AsSlice()})
		case q.Qtype == dns.TypeAAAA && ip.Is6():
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(q.Name, dns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	if len(m.Answer) == 0 {
		z.addSOA(m)
	}
}

// lookup finds a service by its name, or by _port._protocol in front of it.
func (z *Zone) lookup(name string) (svc []services.Service, port, protocol string, ok bool) {
	if svc, ok = z.services[name]; ok {
		return svc, "", "", true
	}
	if labels := strings.SplitN(name, ".", 3); len(labels) == 3 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_") {
		if svc, ok = z.services[labels[2]]; ok {
			for _, p := range svc[0].Ports {
				if p.Name == labels[0][1:] && strings.EqualFold(string(p.Protocol), labels[1][1:]) {
					return svc, labels[0][1:], labels[1][1:], true
				}
			}
		}
	}
	return nil, "", "", false
}

// exists says whether a name has something below it, so that it exists without having records.
func (z *Zone) exists(name string) bool {
	return name == Domain || name == "svc."+Domain || z.namespaces[name]
}

func (z *Zone) answerReverse(m *dns.Msg, q dns.Question, ip netip.Addr) {
	name, ok := z.reverse[ip]
	if !ok {
		m.Rcode = dns.RcodeNameError
		return
	}
	if q.Qtype == dns.TypePTR {
		m.Answer = append(m.Answer, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: name})
	}
}

// addSOA lets resolvers keep a negative answer for as long as a positive one.
func (z *Zone) addSOA(m *dns.Msg) {
	m.Ns = append(m.Ns, &dns.SOA{Hdr: header(Domain, dns.TypeSOA), Ns: "ns.dns." + Domain, Mbox: "hostmaster." + Domain,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl})
}

// addresses are a service's addresses: its own, or, of a headless one, those of its pods in any order.
func addresses(families []services.Service) (ips []netip.Addr) {
	for _, s := range families {
		if s.ClusterIP.IsValid() {
			ips = append(ips, s.ClusterIP)
		} else {
			ips = append(ips, s.Pods...)
		}
	}
	rand.Shuffle(len(ips), func(i, j int) { ips[i], ips[j] = ips[j], ips[i] })
	return ips
}

// target is where a port of a service is found.
type target struct {
	name string
	port uint16
}

// targets are the pods of a headless service that have names, at their own ports, and else the service itself.
func targets(families []services.Service, p services.Port) (out []target) {
	name := strings.ToLower(families[0].Name + "." + families[0].Namespace + ".svc." + Domain)
	for _, s := range families {
		for _, h := range s.Hosts {
			for _, sp := range s.Ports {
				for _, b := range sp.Backends {
					t := target{strings.ToLower(h.Name) + "." + name, b.Port()}
					if !s.ClusterIP.IsValid() && b.Addr() == h.Addr && sp.Name == p.Name && sp.Protocol == p.Protocol && !slices.Contains(out, t) {
						out = append(out, t)
					}
				}
			}
		}
	}
	if out == nil {
		return []target{{name, p.Port}}
	}
	return out
}

func reversed(name string) (netip.Addr, bool) {
	if host, ok := strings.CutSuffix(name, ".ip6.arpa."); ok {
		return reverse6(host), true
	}
	host, ok := strings.CutSuffix(name, ".in-addr.arpa.")
	if !ok {
		return netip.Addr{}, false
	}
	labels := strings.Split(host, ".")
	if len(labels) != 4 {
		return netip.Addr{}, true
	}
	ip, err := netip.ParseAddr(labels[3] + "." + labels[2] + "." + labels[1] + "." + labels[0])
	if err != nil {
		return netip.Addr{}, true
	}
	return ip, true
}

// reverse6 reads the 32 digits of an address, last first, with dots between; an invalid address if they are not that.
func reverse6(host string) netip.Addr {
	digits := strings.Split(host, ".")
	if len(digits) != 32 {
		return netip.Addr{}
	}
	slices.Reverse(digits)
	b, err := hex.DecodeString(strings.Join(digits, ""))
	if err != nil || len(b) != 16 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte(b))
}

func header(name string, rtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rtype, Class: dns.ClassINET, Ttl: ttl}
}
