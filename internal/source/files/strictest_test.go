package files

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
)

func strictest(kind, spec string) (message proto.Message, effect string) {
	key := model.Key{Group: model.SecurityGroup, Kind: kind, Namespace: "shop", Name: "p"}
	value, effect := Strictest(key, []byte(`{"apiVersion":"security.istio.io/v1","kind":"`+kind+`","metadata":{"name":"p","namespace":"shop","uid":"u","generation":3},"spec":`+spec+`}`))
	switch o := value.(type) {
	case *securityv1.AuthorizationPolicy:
		return &o.Spec, effect
	case *securityv1.PeerAuthentication:
		return &o.Spec, effect
	}
	return nil, effect
}

func TestStrictestReadings(t *testing.T) {
	const policy, peers = "AuthorizationPolicy", "PeerAuthentication"
	for _, c := range []struct{ name, kind, spec, want, effect string }{
		{"of an ALLOW policy the rules that can be read", policy, `{"rules":[{"from":[{"source":{"namespaces":["a"]}}]},{"to":[{"operation":{"ports":["http"]}}]}]}`,
			`{"rules":[{"from":[{"source":{"namespaces":["a"]}}]}]}`, "nothing else"},
		{"of a DENY policy the clauses that can be read", policy, `{"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":["10.0.0.1","x"]}}],"to":[{"operation":{"ports":["80"]}}]}]}`,
			`{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "which is more"},
		{"conditions one by one", policy, `{"action":"DENY","rules":[{"when":[{"key":"x","values":["y"]},{"key":"source.ip","values":["10.0.0.1"]}]}]}`,
			`{"action":"DENY","rules":[{"when":[{"key":"source.ip","values":["10.0.0.1"]}]}]}`, ""},
		{"a rule that is nothing denies everything", policy, `{"action":"DENY","rules":[null]}`, `{"action":"DENY","rules":[{}]}`, ""},
		{"a field of a later version beside the rules allows nothing", policy, `{"rules":[{}],"onlyAtNight":true}`, `{}`, "allows nothing"},
		{"and denies everything", policy, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}],"onlyAtNight":true}`, `{"action":"DENY","rules":[{}]}`, "denies everything"},
		{"rules that are none", policy, `{"action":"DENY","rules":"all"}`, `{"action":"DENY","rules":[{}]}`, ""},
		{"a selector of a later version chooses more", policy, `{"selector":{"matchLabels":{"app":"web"},"matchExpressions":[]},"action":"DENY","rules":[{}]}`, `{"selector":{"matchLabels":{"app":"web"}},"action":"DENY","rules":[{}]}`, ""},
		{"and must not open more", policy, `{"selector":{"matchLabels":{"app":"web"},"matchExpressions":[]},"rules":[{}]}`, `{"selector":{"matchLabels":{"app":"web"}}}`, "allows nothing"},
		{"a selector that is none chooses all", policy, `{"selector":7,"action":"DENY","rules":[{}]}`, `{"selector":{},"action":"DENY","rules":[{}]}`, ""},
		{"a label that no pod can have chooses nobody", policy, `{"selector":{"matchLabels":{"app":"web ","tier":"front"}},"action":"DENY","rules":[{}]}`, "", ""},
		{"and one that has such a name", policy, `{"selector":{"matchLabels":{"an app":"web"}},"action":"DENY","rules":[{}]}`, "", ""},
		{"whom nothing is closed to", policy, `{"selector":{"matchLabels":{"app":"web "}},"rules":[{}]}`, "", ""},
		{"nor if more of it cannot be read", policy, `{"selector":{"matchLabels":{"app":"web "}},"rules":[{}],"onlyAtNight":true}`, "", ""},
		{"nor if more of the selector cannot", policy, `{"selector":{"matchLabels":{"app":"web "},"matchExpressions":[]},"rules":[{}]}`, "", ""},
		{"what cannot be read of a selector chooses more, by the rest", policy, `{"selector":{"matchLabels":{"app":7,"tier":"front"}},"action":"DENY","rules":[{}]}`, `{"selector":{"matchLabels":{"tier":"front"}},"action":"DENY","rules":[{}]}`, "namespace shop (of the mesh if that is its root namespace) that the rest of its selector chooses, tier=front"},
		{"and everybody if there is none, which is said", policy, `{"selector":{"matchLabels":{"app":7}},"rules":[{}]}`, `{"selector":{}}`, "every workload of namespace shop"},
		{"a selector beside a target counts", policy, `{"selector":{"matchLabels":{"app":"web"}},"targetRefs":[{"kind":"Gateway","name":"w"}],"rules":[{}]}`, `{"selector":{"matchLabels":{"app":"web"}},"rules":[{}]}`, ""},
		{"a policy of waypoints is none of node proxies'", policy, `{"targetRefs":[{"kind":"Gateway","name":"w"}],"rules":[{"later":1}]}`, "", ""},
		{"nor is one with a target of an older form", policy, `{"targetRef":{"kind":"Gateway","name":"w"},"rules":[{"later":1}]}`, "", ""},
		{"a list of no targets names none", policy, `{"targetRefs":[],"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":["x"]}}]}]}`, `{"action":"DENY","rules":[{}]}`, "which is more"},
		{"nor does what is no list", policy, `{"targetRefs":"w","targetRef":7,"action":"DENY","rules":[{}]}`, `{"action":"DENY","rules":[{}]}`, ""},
		{"nor one of an action that they do not have", policy, `{"action":"CUSTOM","rules":[{}]}`, "", ""},
		{"or that nobody knows", policy, `{"action":"PONDER","rules":[{}]}`, "", ""},
		{"a provider is left out", policy, `{"provider":{"name":"x"},"rules":[{}]}`, `{"rules":[{}]}`, ""},
		{"peers with an unknown mode", peers, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"QUANTUM"}}`, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"}}`, "STRICT"},
		{"peers with a field of a later version", peers, `{"mtls":{"mode":"PERMISSIVE"},"except":["a"]}`, `{"mtls":{"mode":"STRICT"}}`, ""},
		{"a strict port that is none may be any", peers, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80800":{"mode":"STRICT"},"80":{"mode":"PERMISSIVE"}}}`,
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"},"portLevelMtls":{"80":{"mode":"PERMISSIVE"}}}`, "STRICT"},
		{"an open port that is none opens none", peers, `{"selector":{"matchLabels":{"app":"web"}},"portLevelMtls":{"0":{"mode":"PERMISSIVE"},"80":{"mode":"STRICT"}}}`,
			`{"selector":{"matchLabels":{"app":"web"}},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, ""},
		{"ports without a selector", peers, `{"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, `{"mtls":{"mode":"STRICT"}}`, ""},
		{"ports with a selector of nothing", peers, `{"selector":{},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, `{"mtls":{"mode":"STRICT"}}`, ""},
		{"permissive ports without a selector", peers, `{"portLevelMtls":{"80":{"mode":"PERMISSIVE"}}}`, `{}`, ""},
		{"a label that no pod can have, of peers", peers, `{"selector":{"matchLabels":{"app":"web ","tier":"front"}},"mtls":{"mode":"STRICT"},"portLevelMtls":{"80":{"mode":"PERMISSIVE"}}}`, "", ""},
		{"a selector of peers of which part cannot be read", peers, `{"selector":{"matchLabels":{"app":7,"tier":"front"}},"mtls":{"mode":"STRICT"}}`,
			`{"selector":{"matchLabels":{"tier":"front"}},"mtls":{"mode":"STRICT"}}`, "the rest of its selector"},
		{"a selector of which nothing is left", peers, `{"selector":{"matchLabels":{"app":7}},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, `{"selector":{},"mtls":{"mode":"STRICT"}}`, "all workloads of namespace shop"},
		{"peers that open", peers, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"0":{"mode":"PERMISSIVE"}}}`, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"}}`, "opens nothing that is STRICT without it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, effect := strictest(c.kind, c.spec)
			if c.want == "" {
				if got != nil {
					t.Errorf("got %v", got)
				}
				return
			}
			if got == nil {
				t.Fatal("nothing stands in for it")
			}
			want := got.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal([]byte(c.want), want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) || effect == "" || !strings.Contains(effect, c.effect) {
				t.Errorf("got %v, which %s", got, effect)
			}
		})
	}
	if value, _ := Strictest(model.ServiceEntryKey("shop", "e"), []byte(`{"spec":{"hosts":["*"]}}`)); value != nil {
		t.Errorf("an entry is read as %v", value)
	}
}

// FuzzStrictest reads whatever an API server may hand out: no panic, and what is read is nothing that would be refused for its rules.
func FuzzStrictest(f *testing.F) {
	for _, spec := range []string{
		`{"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":["10.0.0.1","x"]}}],"when":[{"key":"x"},null]},null,7]}`,
		`{"rules":[{"to":[{"operation":{"ports":["http"]}}]}],"selector":{"matchLabels":{"a":"b","c":7}},"later":1}`,
		`{"mtls":{"mode":"QUANTUM"},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, `[]`, `null`, `{"action":7}`,
	} {
		f.Add([]byte(`{"metadata":{"name":"p","namespace":"shop"},"spec":` + spec + `}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range []string{"AuthorizationPolicy", "PeerAuthentication"} {
			key := model.Key{Group: model.SecurityGroup, Kind: kind, Namespace: "shop", Name: "p"}
			value, effect := Strictest(key, raw)
			if (value == nil) != (effect == "") {
				t.Fatalf("%v, which %q", value, effect)
			}
			var faults []fault
			switch o := value.(type) {
			case *securityv1.AuthorizationPolicy:
				faults = checkAuthorizationPolicy(o)
			case *securityv1.PeerAuthentication:
				faults = checkPeerAuthentication(o)
			}
			for _, fault := range faults {
				if fault.severity == Refused && !strings.HasPrefix(fault.field, "spec.selector") {
					t.Errorf("%s: %s: %s", kind, fault.field, fault.message)
				}
			}
		}
	})
}
