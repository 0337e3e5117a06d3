package ca

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ownToken is a token of the pod shop/db-1 on node n2.
func (a *authority) ownToken() string { return a.ownTokenOf("d1", "n2") }

// ownTokenOf is one of a pod of that name with another uid, or on another node.
func (a *authority) ownTokenOf(uid, node string) string {
	return a.token(func(c jwt.MapClaims, k map[string]any) {
		c["sub"] = "system:serviceaccount:shop:db"
		k["namespace"], k["serviceaccount"] = "shop", map[string]any{"name": "db"}
		k["pod"], k["node"] = map[string]any{"name": "db-1", "uid": uid}, map[string]any{"name": node}
	})
}

// A tenant chooses the service account, the labels and the token volumes of his pods: none of them says that a key may leave the node proxy.
func TestAPodGetsNoCertificateInItsOwnNameUnlessItsAccountIsListed(t *testing.T) {
	a := newAuthority(t)
	for who, token := range map[string]string{"a tenant's pod": a.ownToken(), "a node proxy": a.token(nil)} {
		_, err := a.ask(token, "", csr(t, newKey(t), nil), 0)
		text := status.Convert(err).Message()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(text, "--own-identity-accounts") || !strings.Contains(text, "control.ownIdentityAccounts") {
			t.Errorf("%s: %v", who, err)
		}
	}
	if a.counted.refused["own_identity_not_listed"] != 2 || a.counted.issued != 0 {
		t.Errorf("counted %v", a.counted)
	}
}

func TestAListedPodGetsItsOwnIdentityForAShortTime(t *testing.T) {
	a := newAuthority(t)
	a.service.Authorizer.Own = OwnNames{Accounts: map[string]bool{"shop/db": true}, Lifetime: time.Hour}
	for asked, want := range map[int64]time.Duration{0: time.Hour, 24 * 3600: time.Hour, 600: 10 * time.Minute} {
		resp, err := a.ask(a.ownToken(), "", csr(t, newKey(t), nil), asked)
		if err != nil {
			t.Fatal(err)
		}
		leaf := parse(t, resp.CertChain[0])
		if got := leaf.URIs[0].String(); got != "spiffe://cluster.local/ns/shop/sa/db" {
			t.Errorf("got %s", got)
		}
		if got := leaf.NotAfter.Sub(a.now); got != want {
			t.Errorf("asked for %d s, it lives %s, want %s", asked, got, want)
		}
	}
	// Certificates that a node proxy asks for in others' names live as long as before.
	resp, err := a.ask(a.token(nil), web, csr(t, newKey(t), nil), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, resp.CertChain[0]).NotAfter.Sub(a.now); got != 24*time.Hour {
		t.Errorf("in another's name it lives %s", got)
	}
}

// Being listed gives an account its own name and no more.
func TestAListedPodMayNotActForOthersNorWithAnothersToken(t *testing.T) {
	a := newAuthority(t)
	a.service.Authorizer.Own = OwnNames{Accounts: map[string]bool{"shop/db": true}}
	for name, c := range map[string]struct {
		token, impersonate, reason string
	}{
		"another's name":         {a.ownToken(), web, "not_a_node_proxy"},
		"its own, impersonated":  {a.ownToken(), "spiffe://cluster.local/ns/shop/sa/db", "not_a_node_proxy"},
		"an earlier pod's token": {a.ownTokenOf("older", "n2"), "", "stale_pod"},
		"another node's token":   {a.ownTokenOf("d1", "n1"), "", "unknown_node"},
	} {
		if _, err := a.ask(c.token, c.impersonate, csr(t, newKey(t), nil), 0); status.Code(err) != codes.PermissionDenied || a.counted.refused[c.reason] == 0 {
			t.Errorf("%s: got %v, counted %v", name, err, a.counted.refused)
		}
	}
	if a.counted.issued != 0 {
		t.Errorf("%d were issued", a.counted.issued)
	}
}

func TestAListedPodOnItsNodesNetworkGetsNoCertificate(t *testing.T) {
	a := newAuthority(t)
	a.service.Authorizer.Own = OwnNames{Accounts: map[string]bool{"shop/db": true}}
	onHost := pod("shop", "db-1", "db", "n2", "d1")
	onHost.Spec.HostNetwork = true
	a.put(onHost)
	_, err := a.ask(a.ownToken(), "", csr(t, newKey(t), nil), 0)
	if status.Code(err) != codes.PermissionDenied || a.counted.refused["own_identity_on_host_network"] != 1 || !strings.Contains(err.Error(), "hostNetwork") {
		t.Errorf("got %v, counted %v", err, a.counted.refused)
	}
}

func TestTheAccountOfADeployedGatewayCountsAsListed(t *testing.T) {
	a := newAuthority(t)
	deployed := false
	a.service.Authorizer.Own = OwnNames{Deployed: func(account string) bool { return deployed && account == "shop/db" }, Lifetime: time.Hour}
	if _, err := a.ask(a.ownToken(), "", csr(t, newKey(t), nil), 0); status.Code(err) != codes.PermissionDenied {
		t.Errorf("nothing is deployed: %v", err)
	}
	deployed = true
	resp, err := a.ask(a.ownToken(), "", csr(t, newKey(t), nil), 24*3600)
	if err != nil {
		t.Fatal(err)
	}
	if leaf := parse(t, resp.CertChain[0]); leaf.URIs[0].String() != "spiffe://cluster.local/ns/shop/sa/db" || leaf.NotAfter.Sub(a.now) != time.Hour {
		t.Errorf("got %s for %s", leaf.URIs[0], leaf.NotAfter.Sub(a.now))
	}
	// Its own name and no more.
	if _, err := a.ask(a.ownToken(), web, csr(t, newKey(t), nil), 0); status.Code(err) != codes.PermissionDenied {
		t.Errorf("in another's name: %v", err)
	}
}
