package printer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

func TestFit(t *testing.T) {
	const whole = "NODE   SOURCE                               RATE   PEER\nn1     default/client-fwxdwmcsb9-qgwkn   1.0 KiB   default/echo\n"
	for _, width := range []int{200, 60, 50, 40} {
		g := NewGrid("NODE", "SOURCE", "RATE", "PEER").Right(2)
		g.Row("n1", "default/client-fwxdwmcsb9-qgwkn", "1.0 KiB", "default/echo")
		g.Fit(width, []int{1}, []int{3})
		var b strings.Builder
		if err := g.Print(&b, ""); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d: %d wide: %s", width, n, line)
			}
		}
		if !strings.Contains(b.String(), "1.0 KiB") || width == 200 && b.String() != whole {
			t.Errorf("at %d:\n%s", width, b.String())
		}
		if hasPeer := strings.Contains(b.String(), "PEER"); hasPeer != (width >= 50) {
			t.Errorf("at %d: PEER is there: %v", width, hasPeer)
		}
		if width < 200 && !strings.Contains(b.String(), "gwkn") {
			t.Errorf("at %d the name lost its end:\n%s", width, b.String())
		}
	}
}

// A name that readers copy is whole as long as a column that they do not copy can go or be cut instead.
func TestCopiedColumnsAreCutLast(t *testing.T) {
	const name, account = "productpage-v1-7d4c8b9f5c-xk2lp", "bookinfo-productpage-of-a-long-name"
	for width, want := range map[int]struct {
		heading string
		whole   bool
	}{
		100: {"NAME AGE IP ACCOUNT", true},
		70:  {"NAME AGE IP ACCOUNT", true}, // ACCOUNT is cut
		65:  {"NAME IP ACCOUNT", true},
		55:  {"NAME AGE IP", true}, // without ACCOUNT there is room for AGE again
		48:  {"NAME IP", true},
		37:  {"NAME AGE", true},
		30:  {"NAME", false}, // the name alone is wider
		24:  {"NAME AGE", false},
	} {
		g := NewGrid("NAME", "AGE", "IP", "ACCOUNT").Copied(0)
		g.Row(name, "5m", "10.244.1.12", account)
		g.Fit(width, []int{0, 3}, []int{1, 3, 2})
		var b strings.Builder
		if err := g.Print(&b, ""); err != nil {
			t.Fatal(err)
		}
		heading, row, _ := strings.Cut(b.String(), "\n")
		if words(heading) != want.heading || strings.Contains(row, name) != want.whole || utf8.RuneCountInString(strings.TrimRight(row, "\n")) > width {
			t.Errorf("at %d:\n%s", width, b.String())
		}
	}
}

const productpage = "productpage-v1-5f85rslftt-l7pvp"

// The fewest names are cut: one long name does not shorten all others.
func TestFitCutsAsFewNamesAsPossible(t *testing.T) {
	g := NewGrid("NAME", "APIVERSION").Copied(0, 1)
	g.Row("validatingwebhookconfigurations", "admissionregistration.k8s.io/v1")
	for range 3 {
		g.Row("authorizationpolicies", "gateway.networking.k8s.io/v1")
	}
	g.Fit(54, []int{0, 1}, nil)
	var b strings.Builder
	if err := g.Print(&b, ""); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "…") != 2 || strings.Count(b.String(), "authorizationpolicies   ") != 3 {
		t.Errorf("got\n%s", b.String())
	}
}

// At 100 columns the names of Bookinfo's objects can be copied from every table.
func TestNamesOfBookinfoAreWholeInEveryTable(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: productpage, Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: "n2", ServiceAccountName: "bookinfo-productpage"}, Status: corev1.PodStatus{Phase: "Running", PodIP: "10.244.1.12"}}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	objects := []api.Object{{Key: api.Key{Kind: "Pod", Namespace: "default", Name: productpage}, Created: time.Now().Add(-3 * time.Minute), Raw: raw}}
	var resources []APIResource
	for _, r := range [][2]string{{"pods", "v1"}, {"authorizationpolicies", "security.istio.io/v1"}, {"peerauthentications", "security.istio.io/v1"},
		{"virtualservices", "networking.istio.io/v1"}, {"customresourcedefinitions", "apiextensions.k8s.io/v1"}, {"proxyconfigs", "networking.istio.io/v1beta1"}} {
		resources = append(resources, APIResource{Name: r[0], ShortNames: []string{"crd", "crds"}, APIVersion: r[1], Namespaced: true, Kind: "RequestAuthentication", Effect: EffectEngine})
	}
	status := api.Status{Mesh: "default", Control: api.ControlState{Ready: true}}
	var certificates []ProxyCertificate
	for _, account := range []string{"bookinfo-details", "bookinfo-productpage"} {
		identity := "spiffe://cluster.local/ns/default/sa/" + account
		status.Pods = append(status.Pods, api.PodState{Namespace: "default", Name: productpage, Node: "n2", Phase: "Running", Ready: true, Enrolled: true, Redirection: true, Mesh: "enrolled", Identity: identity})
		certificates = append(certificates, ProxyCertificate{Identity: identity, State: "Available", Serial: strings.Repeat("AB", 16), ValidUntil: time.Now().Add(time.Hour),
			Roots: []ProxyRoot{{Subject: "O=cluster.local, CN=Lateen root CA of a mesh"}}})
	}
	for _, tt := range []struct {
		what  string
		write func(*bytes.Buffer) error
		whole []string
	}{
		{"get pods", func(b *bytes.Buffer) error { return Objects(b, objects, Options{Format: Wide, Width: 100}) }, []string{productpage, "bookinfo-productpage", "n2"}},
		{"get pods -A", func(b *bytes.Buffer) error {
			return Objects(b, objects, Options{Format: Wide, Width: 100, Namespaces: true})
		}, []string{productpage, "10.244.1.12"}},
		{"get pods --show-labels", func(b *bytes.Buffer) error {
			labelled := pod
			labelled.Labels = map[string]string{"app": strings.Repeat("productpage", 5)}
			raw, _ := json.Marshal(labelled)
			return Objects(b, []api.Object{{Key: objects[0].Key, Raw: raw}}, Options{ShowLabels: true, Width: 100})
		}, []string{productpage, "RESTARTS"}},
		{"api-resources", func(b *bytes.Buffer) error { return APIResources(b, resources, Table, 100) },
			[]string{"customresourcedefinitions", "apiextensions.k8s.io/v1", "networking.istio.io/v1beta1", "RequestAuthentication"}},
		{"status", func(b *bytes.Buffer) error {
			return Status(b, status, term.Style{}, StatusOptions{Width: 100, Now: time.Now()})
		},
			[]string{productpage, "bookinfo-details\n", "bookinfo-productpage\n"}},
		{"proxy config certificates", func(b *bytes.Buffer) error { return View{Columns: 100, Now: time.Now()}.Certificates(b, certificates) },
			[]string{certificates[0].Identity, certificates[1].Identity}},
	} {
		var b bytes.Buffer
		if err := tt.write(&b); err != nil {
			t.Fatal(err)
		}
		for _, name := range tt.whole {
			if !strings.Contains(b.String(), name) {
				t.Errorf("%s: %q is not whole:\n%s", tt.what, name, b.String())
			}
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
				t.Errorf("%s: %d wide: %s", tt.what, n, line)
			}
		}
	}
}

// The scheme and trust domain of identities go first. They stay if there is room, or if identities differ in them.
func TestStatusLeavesOutATrustDomainThatAllIdentitiesShare(t *testing.T) {
	for _, tt := range []struct {
		width   int
		domain  string // of the second identity; the first one has td
		account string // its namespace
		heading string
		first   string
	}{
		{0, "td", "shop", "NAMESPACE POD NODE STATE MESH IDENTITY", "n1 Ready enrolled spiffe://td/ns/shop/sa/bookinfo"},
		{110, "td", "shop", "NAMESPACE POD NODE STATE MESH IDENTITY", "n1 Ready enrolled spiffe://td/ns/shop/sa/bookinfo"},
		{95, "td", "shop", "NAMESPACE POD NODE STATE MESH IDENTITY", "n1 Ready enrolled ns/shop/sa/bookinfo"},
		{90, "td", "shop", "NAMESPACE POD NODE STATE MESH SERVICE ACCOUNT", "n1 Ready enrolled bookinfo"},
		{84, "td", "shop", "NAMESPACE POD STATE MESH SERVICE ACCOUNT", "Ready enrolled bookinfo"},
		{105, "another", "shop", "NAMESPACE POD STATE MESH IDENTITY", "Ready enrolled spiffe://td/ns/shop/sa/bookinfo"},
		{92, "td", "yard", "NAMESPACE POD STATE MESH IDENTITY", "Ready enrolled ns/shop/sa/bookinfo"},
	} {
		var s api.Status
		for i, authority := range []string{"td/ns/shop", tt.domain + "/ns/" + tt.account} {
			s.Pods = append(s.Pods, api.PodState{Namespace: "shop", Name: productpage + fmt.Sprint(i), Node: "n1", Phase: "Running", Ready: true, Redirection: true, Enrolled: true, Mesh: "enrolled",
				Identity: "spiffe://" + authority + "/sa/bookinfo"})
		}
		s.Pods = append(s.Pods, api.PodState{Namespace: "shop", Name: "plain", Node: "n1", Phase: "Running", Ready: true, Mesh: "plain"})
		var b strings.Builder
		if err := Status(&b, s, term.Style{}, StatusOptions{Width: tt.width, Now: time.Now()}); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(b.String(), "Pods\n")
		heading, rows, _ := strings.Cut(table, "\n")
		first, _, _ := strings.Cut(rows, "\n")
		if words(heading) != tt.heading || words(first) != "shop "+productpage+"0 "+tt.first {
			t.Errorf("%+v: got\n%s", tt, table)
		}
	}
}
