package ca

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// late asks for a certificate with a token that is valid whenever that is.
func (a *authority) late() error {
	a.t.Helper()
	token := a.token(func(c jwt.MapClaims, _ map[string]any) { c["exp"] = a.now.Add(time.Hour).Unix() })
	_, err := a.ask(token, web, csr(a.t, newKey(a.t), nil), 0)
	return err
}

func TestACAThatHasEndedRefusesAndNamesWhatEndedWhenAndTheFix(t *testing.T) {
	end := start.Add(10 * time.Hour)
	short := func(c *x509.Certificate) { c.NotAfter = end }
	root := certify(t, "root", nil, nil)
	middle, shortMiddle := certify(t, "middle", root, nil), certify(t, "middle", root, short)
	shortOwn, belowMiddle := certify(t, "own", middle, short), certify(t, "own", shortMiddle, nil)
	for _, c := range []struct {
		name  string
		files Files
		text  string
	}{
		{"its own certificate", filesOf(t, shortOwn, []*link{middle}, root), "its own certificate, CN=own,"},
		{"one above it", filesOf(t, belowMiddle, []*link{shortMiddle}, root), "a certificate between it and the root, CN=middle,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, dir := newAuthority(t), t.TempDir()
			put(t, dir, c.files)
			now := func() time.Time { return a.now }
			p, err := LoadPlugged(dir, now, slog.New(slog.NewTextHandler(&a.log, nil)), func(*Signer) {})
			if err != nil {
				t.Fatal(err)
			}
			a.service.Authority = p
			server := NewServerCertificate(p, []string{"control"}, time.Hour, now)

			a.now = end.Add(-time.Second)
			p.step()
			if err := a.late(); err != nil || p.Status().Trouble != "" || strings.Contains(a.log.String(), "level=ERROR") {
				t.Fatalf("a second before: %v, status %+v\n%s", err, p.Status(), a.log.String())
			}
			a.now = end
			for range 3 {
				p.step()
			}
			err = a.late()
			told := a.log.String()
			for _, want := range []string{"signs nothing: " + c.text + " ended at 2026-01-02T13:04:05Z", "have it issued anew and replace it in " + dir} {
				for of, said := range map[string]string{"error": status.Convert(err).Message(), "status": p.Status().Trouble, "log": told} {
					if !strings.Contains(said, want) {
						t.Errorf("the %s lacks %q: %q", of, want, said)
					}
				}
			}
			if status.Code(err) != codes.FailedPrecondition || a.counted.refused["ca_ended"] != 1 || a.counted.issued != 1 {
				t.Errorf("code %s, counted %+v", status.Code(err), a.counted)
			}
			if n := strings.Count(told, "level=ERROR"); n != 1 {
				t.Errorf("told %d times without anybody asking:\n%s", n, told)
			}
			if _, err := server.Get(nil); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("the control plane's own certificate: %v", err)
			}

			_, _, _, files := chainOf(t)
			put(t, dir, files)
			p.step()
			if err := a.late(); err != nil || p.Status().Trouble != "" {
				t.Errorf("with another one plugged in: %v, status %+v", err, p.Status())
			}
		})
	}
}

// Node proxies take no notice of a root's end, so that to issue nothing any more would be what cuts them off.
func TestACAWhoseRootAloneHasEndedIssuesAndIsInTrouble(t *testing.T) {
	end := start.Add(10 * time.Hour)
	root := certify(t, "root", nil, func(c *x509.Certificate) { c.NotAfter = end })
	for _, roots := range [][]*link{{root}, {root, certify(t, "other", nil, nil)}} {
		a, dir := newAuthority(t), t.TempDir()
		put(t, dir, filesOf(t, certify(t, "own", root, nil), nil, roots...))
		p, err := LoadPlugged(dir, func() time.Time { return a.now }, slog.New(slog.NewTextHandler(&a.log, nil)), func(*Signer) {})
		if err != nil {
			t.Fatal(err)
		}
		a.service.Authority = p
		if s := p.Status(); s.Trouble != "" || !s.Expires.Equal(end) {
			t.Errorf("before its end: %+v", s)
		}
		a.now = end
		p.step()
		p.step()
		if err := a.late(); err != nil {
			t.Error(err)
		}
		for of, said := range map[string]string{"status": p.Status().Trouble, "log": a.log.String()} {
			if !strings.Contains(said, "the root, CN=root, ended at 2026-01-02T13:04:05Z") {
				t.Errorf("the %s does not say so: %q", of, said)
			}
		}
		if n := strings.Count(a.log.String(), "level=ERROR"); n != 1 {
			t.Errorf("told %d times", n)
		}
	}
}

// A link to a root of before may end while another leads to the present one.
func TestALinkThatEndsBesideAnotherEndsNothing(t *testing.T) {
	end := start.Add(10 * time.Hour)
	key, root := newKey(t), certify(t, "root", nil, nil)
	middle := certifyKey(t, "middle", key, root, nil)
	other := certifyKey(t, "middle", key, certify(t, "of before", nil, nil), func(c *x509.Certificate) { c.NotAfter = end })
	files := filesOf(t, certify(t, "own", middle, nil), []*link{middle, other}, root)
	for _, loaded := range []time.Time{start, end.Add(time.Minute)} {
		a, dir := newAuthority(t), t.TempDir()
		a.now = loaded
		put(t, dir, files)
		p, err := LoadPlugged(dir, func() time.Time { return a.now }, slog.New(slog.NewTextHandler(&a.log, nil)), func(*Signer) {})
		if err != nil {
			t.Fatal(err)
		}
		a.service.Authority, a.now = p, end.Add(time.Minute)
		p.step()
		if err := a.late(); err != nil || p.Status().Trouble != "" {
			t.Errorf("loaded at %s: %v, status %+v", loaded, err, p.Status())
		}
	}
}

// While roots are changed what is issued may lead to two, and whoever trusts the one that is valid accepts it.
func TestACAWhoseOldRootHasEndedIssuesBelowTheOtherOne(t *testing.T) {
	short := func(c *x509.Certificate) { c.NotAfter = start.Add(10 * time.Hour) }
	key := newKey(t)
	old, other := certifyKey(t, "root", key, nil, short), certifyKey(t, "root", key, nil, nil)
	own := certify(t, "own", other, nil)
	for _, roots := range [][]*link{{old, other}, {other, old}} {
		s, err := ParsePlugged(filesOf(t, own, nil, roots...), start)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ended(start.Add(11 * time.Hour)); err != nil {
			t.Error(err)
		}
	}
}

func TestARootOfOurOwnThatHasEndedSignsNothing(t *testing.T) {
	a := newAuthority(t)
	a.now = a.root.Signer().NotAfter()
	err := a.late()
	for of, said := range map[string]string{"error": status.Convert(err).Message(), "status": a.root.Status().Trouble} {
		for _, want := range []string{"O=cluster.local", "ended at 2035-12-31", "remove root-*.pem, rotation.json and issued.jsonl in " + a.dir, "clock"} {
			if !strings.Contains(said, want) {
				t.Errorf("the %s lacks %q: %q", of, want, said)
			}
		}
	}
	a.root.step()
	if !strings.Contains(a.log.String(), "no certificates are issued") {
		t.Errorf("not in the log:\n%s", a.log.String())
	}
	// The fix is one.
	_ = RequestRotation(a.dir)
	a.root.step()
	roots, _ := filepath.Glob(filepath.Join(a.dir, "root-*.pem"))
	if len(roots) != 4 {
		t.Fatalf("%v", roots)
	}
	for _, path := range append(roots, filepath.Join(a.dir, stateFile), filepath.Join(a.dir, ledgerFile)) {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := LoadRotating(a.dir, "cluster.local", time.Hour, func() time.Time { return a.now }, slog.New(slog.DiscardHandler), func(*Signer) {}); err != nil {
		t.Error(err)
	}
}

func TestASharedRootThatHasEndedSignsNothing(t *testing.T) {
	r := newReplicas(t)
	s := r.mustOpen()
	r.now = s.Signer().RootNotAfter()
	if _, _, err := s.Signer().issue(t.Context(), &Request{public: newKey(t).Public()}, &x509.Certificate{NotAfter: r.now.Add(time.Hour)}, r.now); err == nil || err.Error() != s.Status().Trouble {
		t.Errorf("%v, status %+v", err, s.Status())
	}
	if said := s.Status().Trouble; !strings.Contains(said, "delete the vault and ConfigMap lateen-system/istio-ca-root-cert") {
		t.Error(said)
	}
}

func TestASignerElsewhereIsNotAskedOnceItsRootsHaveEnded(t *testing.T) {
	ends := func(hours int) *link {
		return certify(t, "root", nil, func(c *x509.Certificate) { c.NotAfter = start.Add(time.Duration(hours) * time.Hour) })
	}
	s, err := NewSignerElsewhere("signer", closed{}, "ConfigMap roots", slices.Concat(bundleOf(ends(1)), bundleOf(ends(3))))
	if err != nil {
		t.Fatal(err)
	}
	for hours, want := range map[int]bool{2: false, 3: true} {
		now := start.Add(time.Duration(hours) * time.Hour)
		if err := s.ended(now); (err != nil) != want || err != nil && !strings.Contains(err.Error(), "ConfigMap roots") {
			t.Errorf("after %d hours: %v", hours, err)
		}
	}
	var log bytes.Buffer
	logger, w := slog.New(slog.NewTextHandler(&log, nil)), Watch{}
	for _, hours := range []int{2, 3, 4, 2, 3} {
		w.Look(s, start.Add(time.Duration(hours)*time.Hour), logger)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("told %d times, and it ended twice:\n%s", n, log.String())
	}
}
