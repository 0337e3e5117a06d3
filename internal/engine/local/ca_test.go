package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func writeCA(t *testing.T, dir, content string) {
	t.Helper()
	for _, name := range pluggedFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPluggedInCAIsShownToTheControlPlaneAlone(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	writeCA(t, from, "one ")
	reads := func(content string) {
		t.Helper()
		for _, name := range pluggedFiles {
			path := filepath.Join(to, name)
			data, err := os.ReadFile(path)
			if err != nil || string(data) != content+name {
				t.Errorf("%s holds %q, %v", name, data, err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if owner := info.Sys().(*syscall.Stat_t).Uid; owner != controlUID || info.Mode().Perm() != 0o600 {
				t.Errorf("%s belongs to %d with mode %v", name, owner, info.Mode())
			}
		}
	}
	if err := copyCA(from, to); err != nil {
		t.Fatal(err)
	}
	reads("one ")
	inode := func() uint64 {
		info, err := os.Stat(filepath.Join(to, "ca-cert.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	before := inode()
	if err := copyCA(from, to); err != nil || inode() != before {
		t.Errorf("files that did not change were written again: %v", err)
	}
	writeCA(t, from, "two ")
	if err := os.Rename(filepath.Join(from, "root-cert.pem"), filepath.Join(from, "away")); err != nil {
		t.Fatal(err)
	}
	if err := copyCA(from, to); err == nil {
		t.Error("a CA that lacks a file was shown")
	}
	reads("one ")
	if err := os.Rename(filepath.Join(from, "away"), filepath.Join(from, "root-cert.pem")); err != nil {
		t.Fatal(err)
	}
	if err := copyCA(from, to); err != nil {
		t.Fatal(err)
	}
	reads("two ")
}

func TestCAOptionsReachControlPlaneAndProxies(t *testing.T) {
	dir, o := runDir("/run/lateen/x"), CAOptions{}
	if len(o.flags(dir)) != 0 || len(o.env()) != 0 {
		t.Errorf("without a choice: %v %v", o.flags(dir), o.env())
	}
	o = CAOptions{Dir: "/etc/cacerts", TTL: 10 * time.Second, Aliases: []string{"old.example", "older.example"}}
	if want := []string{"--ca-dir", "/run/lateen/x/cacerts", "--cert-ttl", "10s", "--root-rotation-least-stage", "10s", "--trust-domain-aliases", "old.example,older.example"}; !slices.Equal(o.flags(dir), want) {
		t.Errorf("flags %v, want %v", o.flags(dir), want)
	}
	if want := []string{"SECRET_TTL=10000ms", "TRUST_DOMAIN_ALIASES=old.example,older.example"}; !slices.Equal(o.env(), want) {
		t.Errorf("environment %v, want %v", o.env(), want)
	}
	o.TTL = 48 * time.Hour
	if !slices.Contains(o.flags(dir), "2m0s") {
		t.Errorf("flags %v: a stage may take two minutes, not longer for want of renewals", o.flags(dir))
	}
	plugged := t.TempDir()
	incomplete := CAOptions{Dir: plugged}
	if err := incomplete.complete(); err == nil || !strings.Contains(err.Error(), "must hold ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem") {
		t.Errorf("an empty directory: %v", err)
	}
	writeCA(t, plugged, "")
	if err := incomplete.complete(); err != nil {
		t.Error(err)
	}
}
