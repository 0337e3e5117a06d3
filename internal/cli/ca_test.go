package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// sampleCA is a rotation from its beginning to its end.
func sampleCA() []api.CAStatus {
	one := api.CARoot{Subject: "CN=Lateen root CA,O=cluster.local", Expires: now.Add(24000 * time.Hour)}
	two := api.CARoot{Subject: "CN=Lateen root CA 2,O=cluster.local", Expires: now.Add(87600 * time.Hour)}
	publishing := api.CAStatus{Signing: one.Subject, Expires: one.Expires, Trusted: []api.CARoot{one, two}, Stage: api.CAPublishing, Since: now.Add(-5 * time.Minute), Behind: 2,
		Waiting: []api.CAHolder{{Node: "n1", Identity: "spiffe://cluster.local/ns/default/sa/client"}}, Known: now.Add(time.Hour), Latest: now.Add(24 * time.Hour)}
	dropping := api.CAStatus{Signing: two.Subject, Expires: two.Expires, Trusted: []api.CARoot{two, one}, Stage: api.CADropping, Since: now, Latest: now.Add(24 * time.Hour)}
	return []api.CAStatus{
		{Signing: one.Subject, Expires: one.Expires, Trusted: []api.CARoot{one}, Stage: api.CASteady}, publishing, dropping,
		{Signing: two.Subject, Expires: two.Expires, Trusted: []api.CARoot{two}, Stage: api.CASteady},
	}
}

func TestCARotate(t *testing.T) {
	f := newFake(t)
	f.ca = sampleCA()
	r := f.run("", "ca", "rotate", "--name", "blue")
	if r.code != 0 || !f.askedFor("POST /v1/ca/rotate") || !strings.Contains(r.stderr, "Next: lateen ca status --name blue") {
		t.Errorf("exit code %d: %q %q", r.code, r.stdout, r.stderr)
	}
	f.ca = sampleCA()
	r = f.run("", "ca", "rotate", "--wait")
	if r.code != 0 || !strings.Contains(r.stdout, "root replaced: CN=Lateen root CA 2,O=cluster.local signs and is trusted alone") ||
		!strings.Contains(r.stderr, "every proxy learns to trust the next root") || !strings.Contains(r.stderr, "the next root signs") {
		t.Errorf("exit code %d: %q %q", r.code, r.stdout, r.stderr)
	}
	f.ca = sampleCA()[:2]
	r = f.run("", "ca", "rotate", "--wait", "--timeout", "5s")
	if r.code == 0 || !strings.Contains(r.stderr, "stage publishing") {
		t.Errorf("exit code %d: %q %q", r.code, r.stdout, r.stderr)
	}
	f.ca[0].Trouble = "no space left on device"
	r = f.run("", "ca", "rotate", "--wait")
	if r.code == 0 || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("exit code %d: %q %q", r.code, r.stdout, r.stderr)
	}
	f.fail = errors.New("the root is being rotated already")
	r = f.run("", "ca", "rotate")
	if r.code == 0 || !strings.Contains(r.stderr, "rotated already") || !strings.Contains(r.stderr, "fix: wait") {
		t.Errorf("exit code %d: %q %q", r.code, r.stdout, r.stderr)
	}
}

func TestCAStatusNamesThePluggedInCAAndItsTrouble(t *testing.T) {
	f := newFake(t)
	f.ca = []api.CAStatus{{Source: "/etc/cacerts", Signing: "CN=mesh", Expires: now, Trusted: []api.CARoot{{Subject: "CN=root", Expires: now}}, Trouble: "ca-key.pem is not the key of ca-cert.pem"}}
	r := f.run("", "ca", "status")
	for _, want := range []string{"plugged in from /etc/cacerts", "trusted: CN=root, until 2026-11-20", "in trouble: ca-key.pem is not the key"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q lacks %q", r.stdout, want)
		}
	}
	if strings.Contains(r.stdout, "Rotation") {
		t.Errorf("%q tells of stages", r.stdout)
	}
}

func TestUpWithCertificates(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "up", "--cert-ttl", "10s", "--ca-dir", "/etc/cacerts", "--trust-domain-aliases", "old.example,older.example"); r.code != 0 || len(f.started) != 1 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	if o := f.started[0]; o.CertTTL != 10*time.Second || o.CADir != "/etc/cacerts" || strings.Join(o.TrustDomainAliases, " ") != "old.example older.example" {
		t.Errorf("got %+v", o)
	}
	for _, args := range [][]string{{"--cert-ttl", "1s"}, {"--cert-ttl", "2161h"}, {"--cert-ttl", "-5s"}, {"--trust-domain-aliases", "a/b"}, {"--trust-domain-aliases", "*"}, {"--trust-domain-aliases", ",a"}} {
		if r := f.run("", append([]string{"up"}, args...)...); r.code != ExitUsage {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}
