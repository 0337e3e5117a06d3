package local

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model/wellknown"
)

func TestAddressesAreUniqueAndReusedLate(t *testing.T) {
	for _, cidr := range []string{"10.244.3.0/24", "fd00:10:244:3::/120"} {
		if n := newAddresses(netip.MustParsePrefix(cidr)).free(); n != 253 {
			t.Errorf("%s has room for %d pods", cidr, n)
		}
	}
	a := newAddresses(netip.MustParsePrefix("10.244.3.0/24"))
	seen := map[netip.Addr]bool{}
	var first netip.Addr
	for i := range a.size() {
		ip, err := a.take()
		if err != nil || seen[ip] || !a.cidr.Contains(ip) {
			t.Fatalf("%d: %s, %v", i, ip, err)
		}
		seen[ip] = true
		if i == 0 {
			first = ip
		}
	}
	for _, kept := range []string{"10.244.3.0", "10.244.3.1", "10.244.3.255"} {
		if seen[netip.MustParseAddr(kept)] {
			t.Errorf("%s was handed out", kept)
		}
	}
	if len(seen) != 253 || a.free() != 0 {
		t.Errorf("%d addresses, %d free", len(seen), a.free())
	}
	if _, err := a.take(); err == nil {
		t.Error("one more than there are")
	}
	a.release(first)
	if ip, err := a.take(); err != nil || ip != first {
		t.Errorf("got %s, %v; want %s", ip, err, first)
	}
	b := newAddresses(netip.MustParsePrefix("10.244.3.0/24"))
	one, _ := b.take()
	b.release(one)
	if two, _ := b.take(); one == two {
		t.Errorf("%s was handed out again at once", one)
	}
}

func TestThreshold(t *testing.T) {
	for name, tc := range map[string]struct {
		success, failure int
		results, want    string
	}{
		"one of each":            {1, 1, "10110", "10110"},
		"two successes":          {2, 1, "1011011", "0001001"},
		"three failures":         {1, 3, "1001000", "1111110"},
		"never ready":            {1, 3, "000", "000"},
		"two and two":            {2, 2, "11010011", "01111001"},
		"not ready at the start": {3, 1, "111", "001"},
	} {
		th := threshold{success: tc.success, failure: tc.failure}
		got := ""
		for _, r := range tc.results {
			if th.add(r == '1') {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != tc.want {
			t.Errorf("%s: %s gives %s, want %s", name, tc.results, got, tc.want)
		}
	}
}

func TestEnrolled(t *testing.T) {
	in, out := map[string]string{wellknown.DataplaneMode: modeAmbient}, map[string]string{wellknown.DataplaneMode: modeNone}
	for name, tc := range map[string]struct {
		host    bool
		pod, ns map[string]string
		want    bool
	}{
		"nothing said":                {want: false},
		"the namespace":               {ns: in, want: true},
		"the pod alone":               {pod: in, want: true},
		"the pod against the others":  {pod: out, ns: in, want: false},
		"never on the node's network": {host: true, pod: in, ns: in, want: false},
		"another word":                {ns: map[string]string{wellknown.DataplaneMode: "sidecar"}, want: false},
	} {
		if got := enrolled(tc.host, tc.pod, tc.ns); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAModeThatMeansNothingIsWarnedAbout(t *testing.T) {
	for value, warned := range map[string]bool{modeAmbient: false, modeNone: false, "bogus": true, "": true, "Ambient": true} {
		if got := modeWarning(map[string]string{wellknown.DataplaneMode: value}); (got != "") != warned {
			t.Errorf("%q: %q", value, got)
		}
	}
	if got := modeWarning(map[string]string{"app": "web"}); got != "" {
		t.Errorf("without the label: %q", got)
	}
}

func TestTokenNamesPodAndNodeAndExpires(t *testing.T) {
	s, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := &node{Node: fabric.Node{Index: 2}, name: "n2", uid: "node-uid", podUID: "pod-uid"}
	text, err := s.token(n, "account-uid", now)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := s.publicPEM()
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(pub)
	if block == nil || len(rest) != 0 {
		t.Fatalf("public key %q", pub)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key := parsed.(*ecdsa.PublicKey)
	var c boundClaims
	parse := func(at time.Time) error {
		_, err := jwt.ParseWithClaims(text, &c, func(*jwt.Token) (any, error) { return key, nil },
			jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience("istio-ca"), jwt.WithIssuer("lateen-local"),
			jwt.WithSubject("system:serviceaccount:istio-system:ztunnel"), jwt.WithExpirationRequired(), jwt.WithTimeFunc(func() time.Time { return at }))
		return err
	}
	if err := parse(now); err != nil {
		t.Fatal(err)
	}
	if k := c.Kubernetes; k.Namespace != "istio-system" || k.ServiceAccount != (named{"ztunnel", "account-uid"}) || k.Pod != (named{"ztunnel-n2", "pod-uid"}) || k.Node != (named{"n2", "node-uid"}) {
		t.Errorf("claims %+v", k)
	}
	if err := parse(now.Add(tokenValid + time.Second)); err == nil {
		t.Error("it does not expire")
	}
	if tokenRenew >= tokenValid/2 {
		t.Errorf("renewed every %s though good for %s only", tokenRenew, tokenValid)
	}
}

func TestProxyMetrics(t *testing.T) {
	version, conns := readProxyMetrics([]byte(`# TYPE istio_build gauge
istio_build{component="ztunnel",tag="1.2.3"} 1
lateen_worker_connections{worker="1"} 5
lateen_worker_connections{worker="0"} 7
other{a="x,y=\"}",b="2"} 3e2 1700000000
plain 1
broken{ 1
# EOF
`))
	if version != "1.2.3" || !slices.Equal(conns, []int{7, 5}) {
		t.Errorf("version %q, connections %v", version, conns)
	}
	name, labels, value, ok := metric(`other{a="x,y=\"}",b="2"} 3e2 1700000000`)
	if !ok || name != "other" || labels["b"] != "2" || labels["a"] != `x,y=\"}` || value != 300 {
		t.Errorf("%q %q %v %v", name, labels, value, ok)
	}
}

func FuzzProxyMetrics(f *testing.F) {
	f.Add([]byte("istio_build{tag=\"1\"} 1\n"))
	f.Add([]byte("lateen_worker_connections{worker=\"9\"} 5\nx{a=\"\\"))
	f.Fuzz(func(t *testing.T, in []byte) {
		_, conns := readProxyMetrics(in)
		if len(conns) > bytes.Count(in, []byte("\n"))+1 {
			t.Fatalf("%d workers from %q", len(conns), in)
		}
	})
}

func TestAckedByIsTheLowest(t *testing.T) {
	clients := []api.ClientState{
		{Node: "n1", Types: []api.TypeState{{AckedGeneration: 9}, {AckedGeneration: 4}}},
		{Node: "n2", Types: []api.TypeState{{AckedGeneration: 1}}},
		{Node: "n3"},
	}
	for node, want := range map[string]uint64{"n1": 4, "n2": 1, "n3": 0, "n4": 0} {
		if got := ackedBy(clients, node); got != want {
			t.Errorf("%s: %d, want %d", node, got, want)
		}
	}
}

func TestPodPathHasOnlyWhatEveryUserReaches(t *testing.T) {
	root := t.TempDir() // below directories that only its owner may enter
	open := filepath.Join(root, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	got := filepath.SplitList(podPath(open + ":relative::/usr/bin:/no/such/dir:/usr/bin"))
	if slices.Contains(got, open) || slices.Contains(got, "relative") || slices.Contains(got, "/no/such/dir") {
		t.Errorf("got %q", got)
	}
	if n := len(got); n == 0 || got[0] != "/usr/bin" || len(slices.Compact(slices.Sorted(slices.Values(got)))) != n {
		t.Errorf("got %q", got)
	}
}

func TestOneUserPerAccount(t *testing.T) {
	var i identities
	a, b := i.of("default", "a"), i.of("default", "b")
	if a == b || a != i.of("default", "a") || i.of("other", "a") == a || a < firstPodUID {
		t.Errorf("%d, %d, %d", a, b, i.of("other", "a"))
	}
	if controlUID >= firstPodUID {
		t.Error("the control plane's user may be a pod's")
	}
}

func TestUIDsLookLikeKubernetes(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		u := newUID()
		if len(u) != 36 || u[14] != '4' || !strings.ContainsRune("89ab", rune(u[19])) || seen[u] {
			t.Fatalf("uid %q", u)
		}
		seen[u] = true
	}
}
