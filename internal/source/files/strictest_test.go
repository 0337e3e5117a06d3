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
	case *securityv1.RequestAuthentication:
		return &o.Spec, effect
	}
	return nil, effect
}

func TestStrictestReadings(t *testing.T) {
	const policy, peers, tokens = "AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"
	for _, c := range []struct{ name, kind, spec, want, effect string }{
		{"of an ALLOW policy the rules that can be read", policy, `{"rules":[{"from":[{"source":{"namespaces":["a"]}}]},{"to":[{"operation":{"ports":["http"]}}]}]}`,
			`{"rules":[{"from":[{"source":{"namespaces":["a"]}}]}]}`, "nothing else"},
		{"of a DENY policy the clauses that can be read", policy, `{"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":["10.0.0.1","x"]}}],"to":[{"operation":{"ports":["80"]}}]}]}`,
			`{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "which is more"},
		{"conditions one by one", policy, `{"action":"DENY","rules":[{"when":[{"key":"x","values":["y"]},{"key":"source.ip","values":["10.0.0.1"]}]}]}`,
			`{"action":"DENY","rules":[{"when":[{"key":"source.ip","values":["10.0.0.1"]}]}]}`, ""},
		{"a rule that is nothing denies everything", policy, `{"action":"DENY","rules":[null]}`, `{"action":"DENY","rules":[{}]}`, ""},
		{"a field of a later version beside the rules allows nothing", policy, `{"rules":[{}],"onlyAtNight":true}`, `{}`, "allows nothing"},
		{"and leaves the rules as they are", policy, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}],"onlyAtNight":true}`, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, `"onlyAtNight", which is not known here, changes nothing`},
		{"but for one that would deny everything, since it may say for whom", policy, `{"action":"DENY","rules":[{}],"onlyAtNight":true}`, `{"action":"DENY"}`, "denies nobody"},
		{"which a selector says", policy, `{"selector":{"matchLabels":{"app":"web"}},"action":"DENY","rules":[{}],"onlyAtNight":true}`, `{"selector":{"matchLabels":{"app":"web"}},"action":"DENY","rules":[{}]}`, "changes nothing"},
		{"a field of a later version in a source leaves the others", policy, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"],"moods":["bad"]}}]}]}`, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"]}}]}]}`, "which is more"},
		{"so does one that makes no sense", policy, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"],"ipBlocks":["x"]}}]}]}`, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"]}}]}]}`, "which is more"},
		{"in an operation as well", policy, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"],"notPorts":["90-95"]}}]}]}`, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "which is more"},
		{"accounts that do not go with namespaces go", policy, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"],"serviceAccounts":["x"]}}]}]}`, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"]}}]}]}`, "which is more"},
		{"a source of which nothing is known leaves the other clauses", policy, `{"action":"DENY","rules":[{"from":[{"source":{"moods":["bad"]}}],"to":[{"operation":{"ports":["80"]}}]}]}`, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "which is more"},
		{"or the other sources, lest everybody is denied", policy, `{"action":"DENY","rules":[{"from":[{"source":{"moods":["bad"]}},{"source":{"namespaces":["b"]}}]}]}`, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":["b"]}}]}]}`, "rules[0] denies nobody"},
		{"or the other rules", policy, `{"action":"DENY","rules":[{"from":[{"source":{"moods":["bad"]}}]},{"when":[{"key":"source.ip","values":["10.0.0.1"]}]}]}`, `{"action":"DENY","rules":[{"when":[{"key":"source.ip","values":["10.0.0.1"]}]}]}`, "rules[0] denies nobody"},
		{"so does a source whose fields an API server removed", policy, `{"action":"DENY","rules":[{"from":[{"source":{}}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"and an operation", policy, `{"action":"DENY","rules":[{"to":[{"operation":{}},{"operation":{"ports":["80"]}}]}]}`, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "rules[0] denies nobody"},
		{"and an entry without one", policy, `{"action":"DENY","rules":[{"from":[{}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"or nothing", policy, `{"action":"DENY","rules":[{"from":[{"source":{"moods":["bad"]}}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"an attribute of a later version", policy, `{"action":"DENY","rules":[{"when":[{"key":"source.mood","values":["bad"]}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"or in other letters", policy, `{"action":"DENY","rules":[{"when":[{"key":"Source.IP","values":["10.0.0.1"]}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"beside one that is known", policy, `{"action":"DENY","rules":[{"when":[{"key":"source.mood","values":["bad"]},{"key":"source.ip","values":["10.0.0.1"]}]}]}`, `{"action":"DENY","rules":[{"when":[{"key":"source.ip","values":["10.0.0.1"]}]}]}`, "which is more"},
		{"one that is compared with nothing known", policy, `{"action":"DENY","rules":[{"when":[{"key":"source.ip","valuesFrom":"x"}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"one that is compared with nothing", policy, `{"action":"DENY","rules":[{"when":[{"key":"source.ip","values":[]}]}]}`, `{"action":"DENY","rules":[{}]}`, "which is more"},
		{"a clause of a later version", policy, `{"action":"DENY","rules":[{"unless":[{"source":{"namespaces":["a"]}}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"beside another", policy, `{"action":"DENY","rules":[{"unless":[],"to":[{"operation":{"ports":["80"]}}]}]}`, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "which is more"},
		{"what stands in the place of a source", policy, `{"action":"DENY","rules":[{"from":[{"group":"x"}]}]}`, `{"action":"DENY"}`, "denies nobody"},
		{"what makes no sense denies everybody all the same", policy, `{"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":["x"],"moods":["bad"]}}]}]}`, `{"action":"DENY","rules":[{}]}`, "which is more"},
		{"so does a range of ports", policy, `{"action":"DENY","rules":[{"to":[{"operation":{"ports":["80-90"]}}]}]}`, `{"action":"DENY","rules":[{}]}`, "which is more"},
		{"an empty text", policy, `{"action":"DENY","rules":[{"from":[{"source":{"namespaces":[""]}}]}]}`, `{"action":"DENY","rules":[{}]}`, "which is more"},
		{"a source that is null", policy, `{"action":"DENY","rules":[{"from":[null]},{"from":[{"source":null}]},{"from":[]}]}`, `{"action":"DENY","rules":[{},{},{}]}`, "which is more"},
		{"sources that are null allow nobody", policy, `{"rules":[{"from":null},{"to":[]},{"from":[]}]}`, `{}`, "nothing else"},
		{"of an ALLOW policy all of that allows nothing", policy, `{"rules":[{"from":[{"source":{"namespaces":["b"],"moods":["bad"]}}]},{"when":[{"key":"Source.IP","values":["10.0.0.1"]}]},{"unless":[]},{"from":[null]},{"to":[{"operation":{"ports":["80-90"]}}]}]}`, `{}`, "nothing else"},
		{"a selector of which nothing is known chooses all, but not for everything", policy, `{"selector":{"matchExpressions":[{"key":"app"}]},"action":"DENY","rules":[{},{"to":[{"operation":{"ports":["80"]}}]}]}`,
			`{"selector":{},"action":"DENY","rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, "rules[0] denies nobody"},
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
		{"a policy of waypoints counts for them", policy, `{"targetRefs":[{"kind":"Gateway","name":"w"}],"rules":[{"later":1},{}]}`, `{"targetRefs":[{"kind":"Gateway","name":"w"}],"rules":[{}]}`, "for what its targetRefs name"},
		{"and so does one with a target of an older form", policy, `{"targetRef":{"kind":"Gateway","name":"w"},"rules":[{"later":1}]}`, `{"targetRef":{"kind":"Gateway","name":"w"}}`, "for what its targetRefs name"},
		{"one of them that asks a provider asks it more often", policy, `{"targetRef":{"kind":"Gateway","name":"w"},"action":"CUSTOM","provider":{"name":"p"},"rules":[{"to":[{"operation":{"methods":["GET"],"ports":["x"]}}]}]}`,
			`{"targetRef":{"kind":"Gateway","name":"w"},"action":"CUSTOM","provider":{"name":"p"},"rules":[{"to":[{"operation":{"methods":["GET"]}}]}]}`, "which is more"},
		{"one that only reports does not", policy, `{"targetRef":{"kind":"Gateway","name":"w"},"action":"AUDIT","rules":[{"later":1}]}`, "", ""},
		{"nor does one of which nobody knows for whom it is", policy, `{"targetRefs":[{"kind":"Gateway","name":"w","later":1}],"rules":[{}]}`, "", ""},
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
		{"a mode that is a number and has no name", peers, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":7},"portLevelMtls":{"80":{"mode":8},"81":{"mode":2}}}`,
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"},"portLevelMtls":{"80":{"mode":"STRICT"},"81":{"mode":"PERMISSIVE"}}}`, "STRICT"},
		{"a port with an unknown mode", peers, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"PERMISSIVE"},"portLevelMtls":{"80":{"mode":"QUANTUM"}}}`,
			`{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"STRICT"}}`, "STRICT"},
		{"of a rule about tokens what says where they are", tokens, `{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[{"issuer":"a","timeout":"1m30s","fromParams":["t"]},{"issuer":"b"}]}`,
			`{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[{"issuer":"a","fromParams":["t"]},{"issuer":"b"}]}`, "a request with a token is refused"},
		{"a rule about tokens that is nothing", tokens, `{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[null,{"fromHeaders":[{"prefix":"x"},{"name":"t"}],"later":1}]}`,
			`{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[{"issuer":"unreadable"},{"issuer":"unreadable","fromHeaders":[{"name":"t"}]}]}`, ""},
		{"rules about tokens that are no list", tokens, `{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":7}`, `{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[{"issuer":"unreadable"}]}`, ""},
		{"no tokens for sidecars", tokens, `{"jwtRules":[{"issuer":"a","timeout":"1m30s"}]}`, "", ""},
		{"nor for what cannot be read", tokens, `{"targetRefs":[7],"jwtRules":[{"issuer":"a"}]}`, "", ""},
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
				t.Errorf("got %v: %s", got, effect)
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
		`{"targetRefs":[{"kind":"Service","name":"web"}],"jwtRules":[{"issuer":"a","timeout":"1m30s","fromHeaders":[{"name":""}]},null]}`,
		`{"mtls":{"mode":"QUANTUM"},"portLevelMtls":{"80":{"mode":"STRICT"}}}`, `[]`, `null`, `{"action":7}`,
	} {
		f.Add([]byte(`{"metadata":{"name":"p","namespace":"shop"},"spec":` + spec + `}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range []string{"AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"} {
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
			case *securityv1.RequestAuthentication:
				faults = checkRequestAuthentication(o)
			}
			for _, fault := range faults {
				if fault.severity == Refused && !strings.HasPrefix(fault.field, "spec.selector") {
					t.Errorf("%s: %s: %s", kind, fault.field, fault.message)
				}
			}
		}
	})
}
