package names

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/services"
)

func zone() *Zone {
	addr := netip.MustParseAddr
	return NewZone([]services.Service{
		{Namespace: "default", Name: "web", ClusterIP: addr("10.96.0.5"), Ports: []services.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}},
		{Namespace: "default", Name: "db", Pods: []netip.Addr{addr("10.244.1.2"), addr("10.244.2.2")}},
		{Namespace: "default", Name: "empty"},
		{Namespace: "default", Name: "dual", ClusterIP: addr("10.96.0.6"), Ports: []services.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
		{Namespace: "default", Name: "dual", ClusterIP: addr("fd00:10:96::6"), Ports: []services.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
		{Namespace: "default", Name: "six", Pods: []netip.Addr{addr("fd00:10:244:1::2")}},
		{Namespace: "default", Name: "named", Pods: []netip.Addr{addr("10.244.1.3"), addr("10.244.2.3")},
			Hosts: []services.Host{{Name: "One", Addr: addr("10.244.1.3")}, {Name: "two", Addr: addr("10.244.2.3")}},
			Ports: []services.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.3:8080"), netip.MustParseAddrPort("10.244.2.3:8080")}}}},
		{Namespace: "other", Name: "ext", External: "example.com"},
	}, addr("10.96.0.10"))
}

func ask(z *Zone, name string, qtype uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, qtype)
	return z.Answer(q)
}

func answers(m *dns.Msg) []string {
	out := []string{}
	for _, rr := range m.Answer {
		fields := strings.Fields(rr.String())
		out = append(out, strings.Join(fields[3:], " "))
	}
	slices.Sort(out)
	return out
}

func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
	}{
		{"web.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.96.0.5"}},
		{"WEB.Default.svc.CLUSTER.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.96.0.5"}},
		{"web.default.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"web.default.svc.cluster.local.", dns.TypeMX, dns.RcodeSuccess, nil},
		{"web.default.svc.cluster.local.", dns.TypeSRV, dns.RcodeSuccess, []string{"SRV 0 100 53 web.default.svc.cluster.local.", "SRV 0 100 80 web.default.svc.cluster.local."}},
		{"_http._tcp.web.default.svc.cluster.local.", dns.TypeSRV, dns.RcodeSuccess, []string{"SRV 0 100 80 web.default.svc.cluster.local."}},
		{"_http._udp.web.default.svc.cluster.local.", dns.TypeSRV, dns.RcodeNameError, nil},
		{"db.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.244.1.2", "A 10.244.2.2"}},
		{"dual.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.96.0.6"}},
		{"dual.default.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess, []string{"AAAA fd00:10:96::6"}},
		{"dual.default.svc.cluster.local.", dns.TypeSRV, dns.RcodeSuccess, []string{"SRV 0 100 80 dual.default.svc.cluster.local."}},
		{"six.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, nil},
		{"six.default.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess, []string{"AAAA fd00:10:244:1::2"}},
		{"6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa.", dns.TypePTR, dns.RcodeSuccess, []string{"PTR dual.default.svc.cluster.local."}},
		{"x.ip6.arpa.", dns.TypePTR, dns.RcodeNameError, nil},
		{"one.named.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.244.1.3"}},
		{"one.named.default.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"three.named.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{"one.db.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{"named.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"A 10.244.1.3", "A 10.244.2.3"}},
		{"_http._tcp.named.default.svc.cluster.local.", dns.TypeSRV, dns.RcodeSuccess, []string{"SRV 0 100 8080 one.named.default.svc.cluster.local.", "SRV 0 100 8080 two.named.default.svc.cluster.local."}},
		{"3.2.244.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, []string{"PTR two.named.default.svc.cluster.local."}},
		{"empty.default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, nil},
		{"ext.other.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, []string{"CNAME example.com."}},
		// Names that resolvers try first with their search list must fail at once, or every look-up of a short name would be slow.
		{"web.default.svc.cluster.local.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{"web.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{"example.com.", dns.TypeA, dns.RcodeNameError, nil},
		{"default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess, nil},
		{"nobody.default.svc.cluster.local.", dns.TypeA, dns.RcodeNameError, nil},
		{"5.0.96.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, []string{"PTR web.default.svc.cluster.local."}},
		{"9.0.96.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, nil},
		{"x.y.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, nil},
		{".", dns.TypeA, dns.RcodeNameError, nil},
	} {
		m := ask(zone(), tc.name, tc.qtype)
		if m.Rcode != tc.rcode || !slices.Equal(answers(m), append([]string{}, tc.want...)) {
			t.Errorf("%s %s: got %s %q, want %s %q", tc.name, dns.TypeToString[tc.qtype], dns.RcodeToString[m.Rcode], answers(m), dns.RcodeToString[tc.rcode], tc.want)
		}
	}
}

func TestNegativeAnswersMayBeKept(t *testing.T) {
	for _, m := range []*dns.Msg{ask(zone(), "web.default.svc.cluster.local.", dns.TypeAAAA), ask(zone(), "nobody.default.svc.cluster.local.", dns.TypeA)} {
		if len(m.Ns) != 1 || m.Ns[0].Header().Rrtype != dns.TypeSOA {
			t.Errorf("no SOA in %v", m)
		}
	}
}

func TestOddQuestionsAreRefused(t *testing.T) {
	none, two, chaos, notify := new(dns.Msg), new(dns.Msg), new(dns.Msg), new(dns.Msg)
	two.Question = []dns.Question{{Name: "a.", Qtype: dns.TypeA, Qclass: dns.ClassINET}, {Name: "b.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}
	chaos.Question = []dns.Question{{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}}
	notify.SetNotify("cluster.local.")
	for name, tc := range map[string]struct {
		q    *dns.Msg
		want int
	}{"none": {none, dns.RcodeRefused}, "two": {two, dns.RcodeRefused}, "chaos": {chaos, dns.RcodeRefused}, "notify": {notify, dns.RcodeNotImplemented}} {
		if got := zone().Answer(tc.q).Rcode; got != tc.want {
			t.Errorf("%s: %s, want %s", name, dns.RcodeToString[got], dns.RcodeToString[tc.want])
		}
	}
}

func FuzzAnswerAlwaysPacks(f *testing.F) {
	for _, name := range []string{"web.default.svc.cluster.local.", "_http._tcp.web.default.svc.cluster.local.", "ext.other.svc.cluster.local.", "5.0.96.10.in-addr.arpa."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY} {
			q := new(dns.Msg)
			q.SetQuestion(name, qtype)
			b, err := q.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	z := zone()
	f.Fuzz(func(t *testing.T, in []byte) {
		q := new(dns.Msg)
		if q.Unpack(in) != nil {
			return
		}
		m := z.Answer(q)
		if m.Id != q.Id || !m.Response {
			t.Fatalf("%v does not answer %v", m, q)
		}
		for _, rr := range m.Answer {
			if rr.Header().Rrtype == dns.TypeA && !strings.HasSuffix(strings.ToLower(dns.Fqdn(q.Question[0].Name)), ".svc.cluster.local.") {
				t.Fatalf("an address for a name outside: %v", m)
			}
		}
	})
}

// listening is a server on a port that is free for both protocols.
func listening(t *testing.T) (*Server, string) {
	t.Helper()
	for range 1000 {
		address := "127.0.0.1:" + strconv.Itoa(20000+rand.IntN(12000))
		if s, err := Listen(address); err == nil {
			t.Cleanup(func() { s.Close() })
			return s, address
		}
	}
	t.Fatal("no port is free")
	return nil, ""
}

func TestServerAnswersOverBothProtocolsAndFollowsChanges(t *testing.T) {
	s, address := listening(t)
	q := new(dns.Msg)
	q.SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	for _, network := range []string{"udp", "tcp"} {
		s.Set(&Zone{})
		c := &dns.Client{Net: network, Timeout: 20 * time.Second}
		m, _, err := c.Exchange(q, address)
		if err != nil || m.Rcode != dns.RcodeNameError {
			t.Fatalf("%s, knowing nothing: %v, %v", network, m, err)
		}
		s.Set(zone())
		m, _, err = c.Exchange(q, address)
		if err != nil || !slices.Equal(answers(m), []string{"A 10.96.0.5"}) {
			t.Fatalf("%s: %v, %v", network, m, err)
		}
	}
}

func TestLargeAnswersAreCutOverUDPAndWholeOverTCP(t *testing.T) {
	var pods []netip.Addr
	for i := range 100 {
		pods = append(pods, netip.AddrFrom4([4]byte{10, 244, 1, byte(i + 2)}))
	}
	s, address := listening(t)
	s.Set(NewZone([]services.Service{{Namespace: "default", Name: "db", Pods: pods}}, netip.Addr{}))
	q := new(dns.Msg)
	q.SetQuestion("db.default.svc.cluster.local.", dns.TypeA)
	m, _, err := (&dns.Client{Net: "udp", Timeout: 20 * time.Second}).Exchange(q, address)
	if err != nil || !m.Truncated {
		t.Errorf("udp: truncated %v, %v", m.Truncated, err)
	}
	m, _, err = (&dns.Client{Net: "tcp", Timeout: 20 * time.Second}).Exchange(q, address)
	if err != nil || len(m.Answer) != 100 {
		t.Errorf("tcp: %d answers, %v", len(m.Answer), err)
	}
}
