package meshconfig

import (
	"slices"
	"strings"
	"testing"

	meshapi "istio.io/api/mesh/v1alpha1"
)

// charts is what Istio's charts write.
const charts = `
accessLogFile: /dev/stdout
defaultConfig: {discoveryAddress: "istiod.istio-system.svc:15012", proxyMetadata: {ISTIO_META_ENABLE_HBONE: "true"}}
defaultProviders: {metrics: [prometheus]}
enablePrometheusMerge: true
rootNamespace: istio-system
trust_domain: cluster.local
`

func TestParse(t *testing.T) {
	c, err := Parse(charts)
	if err != nil {
		t.Fatal(err)
	}
	if c.Message.GetTrustDomain() != "cluster.local" || c.Message.GetAccessLogFile() != "/dev/stdout" || len(c.Unknown) > 0 {
		t.Errorf("%v, unknown %v", c.Message, c.Unknown)
	}
	if got, want := c.Unserved("cluster.local", "istio-system"), []string{"defaultConfig", "defaultProviders", "enablePrometheusMerge"}; !slices.Equal(got, want) {
		t.Errorf("nobody goes by %v, want %v", got, want)
	}
	if got := c.Unserved("acme.example", "root"); !slices.Contains(got, "trustDomain") || !slices.Contains(got, "rootNamespace") {
		t.Errorf("nobody goes by %v", got)
	}
	if c, err = Parse("brandNew: {x: 1}\npathNormalization: {normalization: NONE, later: 1}\n"); err != nil || !slices.Equal(c.Unknown, []string{"brandNew"}) {
		t.Errorf("a later Istio's: %v, %v", c, err)
	}
	if c.Message.GetPathNormalization().GetNormalization() != meshapi.MeshConfig_ProxyPathNormalization_NONE {
		t.Errorf("%v", c.Message)
	}
	if c, err = Parse("outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}\ndefaultHttpRetryPolicy: {attempts: 3, backoff: 1s}\n"); err != nil ||
		!slices.Equal(c.Unserved("", ""), []string{"defaultHttpRetryPolicy.backoff", "outboundTrafficPolicy.mode ALLOW_ANY_DYNAMIC_DNS"}) {
		t.Errorf("%v, %v", c, err)
	}
	if c, err = Parse("defaultHttpRetryPolicy: {attempts: 3, retryOn: \"connect-failure, 503,reset,5xx\"}\n"); err != nil ||
		!slices.Equal(c.Unserved("", ""), []string{"defaultHttpRetryPolicy.retryOn 503", "defaultHttpRetryPolicy.retryOn 5xx"}) {
		t.Errorf("%v, %v", c, err)
	}
	for mode, want := range map[string][]string{"REGISTRY_ONLY": {"outboundTrafficPolicy"}, "ALLOW_ANY": nil} {
		c, err := Parse("outboundTrafficPolicy: {mode: " + mode + "}\n")
		if err != nil {
			t.Fatal(err)
		}
		// The mesh refuses nobody the way out of it.
		if got := c.Unserved("", ""); !slices.Equal(got, want) || len(want) > 0 && !slices.Contains(DecidingAccess, want[0]) {
			t.Errorf("%s: nobody goes by %v, want %v", mode, got, want)
		}
	}
	for _, empty := range []string{"", "# nothing\n", "{}", "trustDomain: null\n"} {
		if c, err := Parse(empty); err != nil || len(c.Set) > 0 {
			t.Errorf("%q: %v, %v", empty, c, err)
		}
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n":                                            "no map of fields",
		"a: {\n":                                           "no YAML",
		"trustDomain: a\ntrustDomain: b\n":                 "no YAML",
		"trustDomain: a\ntrust_domain: b\n":                "trustDomain is given twice",
		"accessLogEncoding: XML\n":                         "accessLogEncoding",
		"connectTimeout: soon\n":                           "connectTimeout",
		"pathNormalization: {normalization: [1]}\n":        "pathNormalization",
		"defaultHttpRetryPolicy: {attempts: many}\n":       "defaultHttpRetryPolicy",
		"trustDomainAliases: old\n":                        "trustDomainAliases",
		"outboundTrafficPolicy: {mode: BLOCK}\n":           "outboundTrafficPolicy",
		"accessLogFile: /dev/stdout\nconnectTimeout: {}\n": "connectTimeout",
	} {
		if c, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
}

func TestOperatorsWithoutAValueAreNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"accessLogFile: /dev/stdout\naccessLogFormat: '[%START_TIME(%s)%] %REQ(:PATH?X):5% %DOWNSTREAM_DIRECT_REMOTE_PORT% 100%%CEL'\n": nil,
		"accessLogFormat: '%CEL(a.b)% %PROTOCOL% %CEL(a.b)% %FILTER_STATE(x:PLAIN):9% %LOCAL_PORT%'\n":                                  {"accessLogFormat %CEL(a.b)%", "accessLogFormat %FILTER_STATE(x:PLAIN):9%", "accessLogFormat %LOCAL_PORT%"},
		"accessLogEncoding: JSON\naccessLogFormat: '{\"a\": {\"b\": [\"%PROTOCOL%\", 5]}, \"c\": \"%METADATA(a)%\"}'\n":                 {"accessLogFormat %METADATA(a)%"},
		"accessLogEncoding: JSON\naccessLogFormat: '[\"%PROTOCOL%\"]'\n":                                                                {"accessLogFormat, which is no JSON object"},
		"accessLogEncoding: JSON\n": nil,
	} {
		c, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Unserved("", ""); !slices.Equal(got, want) {
			t.Errorf("%s: nobody goes by %q, want %q", text, got, want)
		}
	}
}

// The lists name fields that there are.
func TestTheListsNameFields(t *testing.T) {
	fields := (&meshapi.MeshConfig{}).ProtoReflect().Descriptor().Fields()
	for _, name := range slices.Concat(Honoured, DecidingAccess) {
		if fields.ByJSONName(name) == nil {
			t.Errorf("MeshConfig has no field %s", name)
		}
	}
}

// FuzzParse gives it any text: no panic, and what is read names each field once and is read alike again.
func FuzzParse(f *testing.F) {
	f.Add(charts)
	f.Add("defaultHttpRetryPolicy: {attempts: 3, retryOn: \"503,reset\", perTryTimeout: 2s}\nmeshMTLS: {minProtocolVersion: TLSV1_3}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(text)
		if err != nil || !slices.Equal(c.Set, again.Set) || len(slices.Compact(slices.Clone(c.Set))) != len(c.Set) {
			t.Fatalf("%v, then %v: %v", c.Set, again, err)
		}
		for _, name := range c.Unknown {
			if !slices.Contains(c.Set, name) {
				t.Errorf("%q is unknown and not set", name)
			}
		}
		c.Unserved("a", "b")
	})
}
