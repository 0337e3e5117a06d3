package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// proxied is a mesh with the configuration of a node's proxy, as Lateen's own proxy wrote it.
func proxied(t *testing.T) *fakeEngine {
	t.Helper()
	dump, err := os.ReadFile("testdata/proxy-dump.json")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	f.status, f.dump = sampleStatus(), string(dump)
	return f
}

func TestProxyConfigParts(t *testing.T) {
	var all strings.Builder
	for _, part := range partNames() {
		for _, args := range [][]string{{part, "n2"}, {part, "n2", "-o", "wide"}} {
			r := proxied(t).run("", append([]string{"proxy", "config"}, args...)...)
			fmt.Fprintf(&all, "$ lateen proxy config %s\nexit code %d\n--- stdout\n%s--- stderr\n%s\n", strings.Join(args, " "), r.code, r.stdout, r.stderr)
		}
	}
	golden(t, "proxy-config.golden", all.String())
}

func TestProxyConfigNeverShowsAKey(t *testing.T) {
	f := proxied(t)
	if !strings.Contains(f.dump, "never shown") {
		t.Fatal("the dump has no key to hide")
	}
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		if r := f.run("", "proxy", "config", "certificates", "n2", "-o", format); r.code != ExitOK || strings.Contains(r.stdout, "never shown") || strings.Contains(r.stdout, "LS0t") {
			t.Errorf("%s: %+v", format, r)
		}
	}
}

// The proxy counts its updates from 1 in each process; the mesh's generation is another number.
func TestOneMeaningOfGeneration(t *testing.T) {
	f := proxied(t)
	r := f.run("", "proxy", "config", "n2")
	var dump map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &dump); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	if dump["generation"] != nil || dump["appliedUpdates"] != 34.0 || dump["acknowledgedGeneration"] != 40.0 || dump["workloads"] == nil {
		t.Errorf("generation %v, appliedUpdates %v, acknowledgedGeneration %v", dump["generation"], dump["appliedUpdates"], dump["acknowledgedGeneration"])
	}
	r = f.run("", "proxy", "config", "workloads", "n2", "-o", "json")
	dump = nil
	if err := json.Unmarshal([]byte(r.stdout), &dump); err != nil || dump["acknowledgedGeneration"] != 40.0 || dump["controlGeneration"] != 42.0 || dump["node"] != "n2" {
		t.Errorf("%v: %s", err, r.stdout)
	}
	// A control plane that is not ready has no generation to compare with.
	f.status.Control.Ready = false
	if r = f.run("", "proxy", "config", "workloads", "n2", "-o", "json"); strings.Contains(r.stdout, "Generation") {
		t.Error(r.stdout)
	}
}

func TestProxyConfigFiltersByNamespace(t *testing.T) {
	f := proxied(t)
	for _, part := range partNames() {
		r := f.run("", "proxy", "config", part, "n2", "-n", "elsewhere")
		if r.code != ExitOK || r.stdout != "" || !strings.Contains(r.stderr, "has no "+part+" of namespace elsewhere") {
			t.Errorf("%s: %+v", part, r)
		}
		if r = f.run("", "proxy", "config", part, "n2", "-n", "elsewhere", "-o", "json"); !strings.Contains(r.stdout, `"`+part+`": []`) {
			t.Errorf("%s: %+v", part, r)
		}
		if r = f.run("", "proxy", "config", part, "n2", "-n", "default"); r.code != ExitOK || strings.Count(r.stdout, "\n") < 2 || strings.Contains(r.stdout, "istio-system/") {
			t.Errorf("%s: %+v", part, r)
		}
	}
}

func TestProxyConfigArguments(t *testing.T) {
	for args, want := range map[string]string{
		"":                   "missing argument: NODE",
		"policies":           "missing argument: the NODE whose policies are meant",
		"polices n2":         "did you mean policies?",
		"listeners n2":       "use one of workloads, services, policies, certificates, connections, or NODE alone",
		"workloads n2 n1":    `unexpected argument "n1"`,
		"n2 -n default":      "--namespace goes with a part",
		"workloads n2 -o xy": "unknown output format",
	} {
		if r := proxied(t).run("", append([]string{"proxy", "config"}, strings.Fields(args)...)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	for _, word := range []string{"policy", "Certificates", "workload", "service", "connection"} {
		if r := proxied(t).run("", "proxy", "config", word, "n2"); r.code != ExitOK {
			t.Errorf("%s: %+v", word, r)
		}
	}
	f := proxied(t)
	if r := f.run("", "proxy", "config", "policies", "n9"); r.code != ExitFailure || !strings.Contains(r.stderr, "there is no node n9") {
		t.Errorf("%+v", r)
	}
	f.dump = `{"workloads": 5}`
	if r := f.run("", "proxy", "config", "workloads", "n2"); r.code != ExitFailure || !strings.Contains(r.stderr, "read the proxy's configuration") {
		t.Errorf("%+v", r)
	}
}

func TestRulesInWords(t *testing.T) {
	for raw, want := range map[string]string{
		`[]`: "every connection",
		`[[{"destinationPorts":[80,443]}],[{"principals":[{"Prefix":"a/"},{"Suffix":"/b"}],"namespaces":[{"Exact":"n"}]}]]`: "destinationPorts 80 or 443 and namespaces n and principals a/* or */b",
		`[[{"principals":[{"Exact":"a"}]},{"notSourceIps":["10.0.0.0/8"]}]]`:                                                "(principals a, or notSourceIps 10.0.0.0/8)",
		`[[{"notPrincipals":[{"Presence":[]}]}]]`:                                                                           "notPrincipals *",
		`{"new":1}`: `{"new":1}`,
	} {
		if got := proxyRuleInWords(json.RawMessage(raw)); got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
}
