package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// What cannot run here is no mistake: it takes part as a plane that says why it was not run, and never starts.
func TestPlanesThatCannotRunHereSayWhy(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "linkerd2-proxy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"cilium":                   "eBPF",
		"linkerd2-proxy":           "control plane",
		"linkerd2-proxy=" + binary: "control plane",
	} {
		spec, err := ParseSpec(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		plane, err := Maker{}.Plane(spec)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		about := plane.Describe()
		if !strings.Contains(about.NotRun, want) || about.Kind != spec.Kind || about.Name != spec.Name {
			t.Errorf("%s: described as %+v, want its kind and %q as the reason", text, about, want)
		}
		if bench, err := plane.Start(t.Context(), Topology{}, func(string) {}); err == nil || bench != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: started: %v, %v", text, bench, err)
		}
	}
}

func TestPeersAreRefusedWithTheCure(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"kuma=/bin/true":           `unknown peer "kuma": use ` + results.KindZtunnel,
		"kuma":                     "unknown peer",
		"ztunnel":                  "write ztunnel=PATH",
		"ztunnel=":                 "write ztunnel=PATH",
		"ztunnel=" + plain:         "is not an executable file",
		"linkerd2-proxy=" + plain:  "is not an executable file",
		"linkerd2-proxy=/no/where": "no such file",
		"lateen=/bin/true":         "lateen takes no path",
	} {
		if _, err := ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", text, err, want)
		}
	}
}
