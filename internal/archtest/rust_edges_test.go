package archtest

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

type cargoMetadata struct {
	Packages []struct {
		Name         string
		Version      string
		License      string
		LicenseFile  string `json:"license_file"`
		ManifestPath string `json:"manifest_path"`
		Source       *string
		RustVersion  string `json:"rust_version"`
		Dependencies []struct {
			Name string
			Kind *string // nil: normal; "dev", "build"
		}
	}
}

var metadata = sync.OnceValues(func() (cargoMetadata, error) {
	var m cargoMetadata
	cmd := exec.Command("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu")
	cmd.Dir = rootDir
	out, err := cmd.Output()
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(out, &m)
})

func cargo(t *testing.T) cargoMetadata {
	t.Helper()
	m, err := metadata()
	if err != nil {
		t.Fatalf("cargo metadata: %v", err)
	}
	return m
}

// Pure crates decide; they import no runtime, socket, clock or randomness of their own.
var pureCrates = []string{"lateen-proxy-protocol", "lateen-types", "lateen-config", "lateen-policy", "lateen-balance", "lateen-dns", "lateen-h1", "lateen-http", "lateen-h2"}

var runtimes = []string{"tokio", "mio", "socket2", "nix", "libc", "rustls", "tokio-rustls", "rand", "hyper", "h2", "tonic", "tracing"}

// soleUsers names the only crates that may depend on a library.
var soleUsers = map[string][]string{
	// The load generator is not of the data plane: TLS of its own, as a client and in its echo service.
	"rustls":       {"lateen-tls", "lateen-load"},
	"tokio-rustls": {"lateen-tls", "lateen-load"},
	// Tests have it as a peer that is not ours; everything else has lateen-h2.
	"h2":          {},
	"nix":         {"lateen-os", "lateen-accept", "lateen-netns", "lateen-listener-store"},
	"libc":        {"lateen-bpf-splice", "lateen-os", "lateen-accept", "lateen-netns", "lateen-listener-store", "lateen-load"},
	"x509-parser": {"lateen-tls"},
	// The message format; what is asked of whom is crates/proxy's.
	"hickory-proto": {"lateen-dns"},
}

// crateOrder lists the crates bottom up: a crate may depend on those before it only.
var crateOrder = []string{
	"lateen-types", "lateen-proto", "lateen-http", "lateen-policy", "lateen-balance", "lateen-config", "lateen-dns", "lateen-tls", "lateen-executor", "lateen-proxy-protocol", "lateen-relay", "lateen-h1", "lateen-h2",
	"lateen-exchange", "lateen-hbone", "lateen-identity", "lateen-xds", "lateen-bpf-splice", "lateen-os", "lateen-accept", "lateen-netns", "lateen-zds", "lateen-listener-store", "lateen-runtime", "lateen-telemetry", "lateen-otlp", "lateen-admin", "lateen-testkit", "lateen-proxy", "lateen-load",
}

func TestCratesPointTheRightWay(t *testing.T) {
	found := map[string]bool{}
	for _, p := range cargo(t).Packages {
		if p.Source != nil {
			continue
		}
		found[p.Name] = true
		position := slices.Index(crateOrder, p.Name)
		if position < 0 {
			t.Errorf("%s has no place in crateOrder: say which crates it may use", p.Name)
			continue
		}
		for _, d := range p.Dependencies {
			if d.Kind != nil {
				continue // Tests may look sideways.
			}
			if strings.HasPrefix(d.Name, "lateen-") && slices.Index(crateOrder, d.Name) >= position {
				t.Errorf("%s depends on %s, which stands above it", p.Name, d.Name)
			}
			if slices.Contains(pureCrates, p.Name) && slices.Contains(runtimes, d.Name) {
				t.Errorf("%s is pure and must not depend on %s", p.Name, d.Name)
			}
			if users, limited := soleUsers[d.Name]; limited && !slices.Contains(users, p.Name) {
				t.Errorf("%s depends on %s, which is for %v alone", p.Name, d.Name, users)
			}
		}
	}
	for _, name := range crateOrder {
		if !found[name] {
			t.Errorf("crateOrder names %s, which is no crate any more", name)
		}
	}
}
