package dataplanes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
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

func TestPeersAreRefusedWithTheFix(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"kuma=/bin/true":           `unknown plane "kuma": use none, lateen, waypoint, or one of ` + results.KindZtunnel,
		"kuma":                     "unknown plane",
		"ztunnel":                  "write ztunnel=PATH",
		"ztunnel=":                 "write ztunnel=PATH",
		"ztunnel=" + plain:         "is not an executable file",
		"linkerd2-proxy=" + plain:  "is not an executable file",
		"linkerd2-proxy=/no/where": "no such file",
		"none=/bin/true":           "none takes no path",
		"waypoint=/bin/true":       "write waypoint:NAME=/bin/true",
		"waypoint:old=/bin/true":   "the program must be called lateen-proxy",
		"lateen=/bin/true":         "write lateen:NAME=/bin/true",
		"lateen:old=":              "write lateen:old=PATH",
		"lateen:Old=/bin/true":     `name "Old": use up to 20 lower-case letters`,
		"lateen:old=" + plain:      "is not an executable file",
		"lateen:old=/bin/true":     "the program must be called lateen-proxy",
		"envoy":                    "write envoy=PATH",
		"envoy=/bin/true":          "/bin/true is no Envoy",
		"envoy-waypoint":           "write envoy-waypoint=PATH",
		"envoy-waypoint=/bin/true": "/bin/true is no Envoy",
		"envoy-one-listener":       "write envoy-one-listener=PATH",
		"envoy-http1=/bin/false":   "ask /bin/false for its version",
	} {
		if _, err := ParseSpec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", text, err, want)
		}
	}
}

func TestABuildOfLateenTakesPartUnderAName(t *testing.T) {
	before := filepath.Join(t.TempDir(), "lateen-proxy")
	if err := os.WriteFile(before, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Spec{
		"lateen:before=" + before: {Name: "before", Kind: results.KindLateen, Path: before},
		"ztunnel:old=/bin/true":   {Name: "old", Kind: results.KindZtunnel, Path: "/bin/true"},
		"lateen:again":            {Name: "again", Kind: results.KindLateen},
		"waypoint":                {Name: "waypoint", Kind: results.KindWaypoint},
	} {
		got, err := ParseSpec(text)
		if err != nil || got.Name != want.Name || got.Kind != want.Kind || got.Path != want.Path {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// refusing is an engine that starts nothing and keeps what it was asked for.
type refusing struct{ asked EngineOptions }

func (r *refusing) Start(_ context.Context, o EngineOptions, _ func(api.Event)) error {
	r.asked = o
	return errors.New("not here")
}
func (r *refusing) Stop(context.Context, string, func(api.Event)) error { return nil }
func (r *refusing) Client(string) *api.Client                           { return nil }

// How many workers run is the plane's only where the scenario leaves it open.
func TestAZtunnelOfOneWorker(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]map[int]string{
		"ztunnel=" + self:     {0: "", 3: "ZTUNNEL_WORKER_THREADS=3"},
		"ztunnel-one=" + self: {0: "ZTUNNEL_WORKER_THREADS=1", 3: "ZTUNNEL_WORKER_THREADS=3"},
	} {
		spec, err := ParseSpec(text)
		if err != nil || spec.Kind != results.KindZtunnel {
			t.Fatalf("%s: %+v, %v", text, spec, err)
		}
		for workers, env := range want {
			engine := &refusing{}
			plane, err := Maker{Engine: engine, Prefix: "t"}.Plane(spec)
			if err != nil {
				t.Fatal(err)
			}
			// A plane of other settings is no witness of the noise between two runs of one program.
			if told := plane.Describe().Settings["workers"]; (told == "1") != (spec.Name == ztunnelOne) {
				t.Errorf("%s: described with %q workers", text, told)
			}
			_, _ = plane.Start(t.Context(), Topology{Nodes: 1, Workers: workers}, func(string) {})
			if got := strings.Join(engine.asked.ProxyEnv, " "); got != env {
				t.Errorf("%s, %d workers: the proxies' environment is %q, want %q", text, workers, got, env)
			}
		}
	}
}

// The pairs of Envoys are one kind of plane with different settings, and their names tell them apart.
func TestAPairOfEnvoysSaysHowItIsSet(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho\necho envoy  version: abc/1.40.0/Clean/RELEASE/BoringSSL\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"envoy": {"HTTP/2+mTLS", "reuse_port"}, "envoy-http1": {"HTTP/1.1+mTLS", "reuse_port"}, "envoy-balanced": {"HTTP/1.1+mTLS", "exact"},
	} {
		spec, err := ParseSpec(name + "=" + binary)
		if err != nil {
			t.Fatal(err)
		}
		plane, err := Maker{}.Plane(spec)
		if err != nil {
			t.Fatal(err)
		}
		about := plane.Describe()
		if about.Kind != results.KindEnvoy || about.Name != name || about.Path != binary || len(about.SHA256) != 64 {
			t.Errorf("%s: described as %+v", name, about)
		}
		if s := about.Settings; s["between_proxies"] != want[0] || s["connection_balance"] != want[1] || s["workers"] != "2" {
			t.Errorf("%s: settings %v, want %s and two workers", name, s, want)
		}
	}
}
