package files

import (
	"strings"
	"testing"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
)

func TestServedJudgesAsFilesAreJudged(t *testing.T) {
	policy := model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "p"}
	entry := model.ServiceEntryKey("shop", "e")
	gateway := model.GatewayKey("shop", "g")
	for _, c := range []struct {
		name  string
		key   model.Key
		spec  string
		taken bool
		want  string // the problem, "severity field: message; fix"
	}{
		{"a policy", policy, `{"rules":[{"to":[{"operation":{"ports":["80"]}}]}]}`, true, ""},
		{"a policy that means nothing", policy, `{"rules":[{"to":[{"operation":{"ports":["http"]}}]}]}`, false,
			`error spec.rules[0].to[0].operation.ports[0]: "http" is not valid here; write a port number from 1 to 65535`},
		{"a policy with a field of a later version", policy, `{"rules":[{"onlyAtNight":true}]}`, false, `error spec.rules[0].onlyAtNight: unknown field "onlyAtNight"; it comes of a later version`},
		{"a policy with a remark", policy, `{"action":"DENY"}`, true, "warning spec.rules: a DENY policy without rules"},
		{"an entry", entry, `{"hosts":["a.example"],"resolution":"DNS","ports":[{"number":443,"name":"tls","protocol":"TLS"}]}`, true, ""},
		{"an entry with a field of a later version", entry, `{"hosts":["a.example"],"resolution":"DNS","later":{"x":[1]},"ports":[{"number":443,"name":"tls","protocol":"TLS"}]}`, true,
			`warning spec.later: unknown field "later"; it comes of a later version`},
		{"an entry that is wrong behind such a field", entry, `{"later":1,"hosts":["*"],"resolution":"DNS"}`, false, "error spec.hosts[0]: the host is every host"},
		{"a gateway", gateway, `{"gatewayClassName":"lateen-waypoint","listeners":[{"name":"mesh","protocol":"HBONE","port":15008}]}`, true, ""},
		{"a gateway with a field of a later version", gateway, `{"gatewayClassName":"lateen-waypoint","later":1,"listeners":[{"name":"mesh","protocol":"HBONE","port":15008}]}`, true,
			"warning spec.later: unknown field; it comes of a later version"},
		{"a gateway that is wrong", gateway, `{"gatewayClassName":"lateen-waypoint","listeners":[]}`, false, "error spec.listeners: there is no listener"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The apiVersion may be any that is served.
			raw := `{"apiVersion":"` + c.key.Group + `/v1beta1","kind":"` + c.key.Kind + `","metadata":{"name":"` + c.key.Name +
				`","namespace":"shop","uid":"u","generation":3,"managedFields":[{"manager":"kubectl"}]},"spec":` + c.spec + `,"status":{}}`
			value, problems := Served(c.key, []byte(raw))
			var said []string
			for _, p := range problems {
				if p.Object != c.key.String() {
					t.Errorf("the problem is about %q", p.Object)
				}
				said = append(said, p.Severity.String()+" "+p.Field+": "+p.Message+"; "+p.Fix)
			}
			got := strings.Join(said, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("problems:\n%s\nwant %s", got, c.want)
			}
			if taken := value != nil; taken != c.taken {
				t.Fatalf("taken: %v", taken)
			}
			switch o := value.(type) {
			case nil:
			case *securityv1.AuthorizationPolicy:
				if o.Generation != 3 || o.Name != "p" {
					t.Errorf("its metadata is %+v", o.ObjectMeta)
				}
			case *networkingv1.ServiceEntry:
				if o.UID != "u" || len(o.Spec.Hosts) != 1 || len(o.Spec.Ports) != 1 {
					t.Errorf("it is %v", o)
				}
			case *gatewayv1.Gateway:
				if len(o.Spec.Listeners) != 1 {
					t.Errorf("it is %v", o)
				}
			default:
				t.Errorf("it is a %T", value)
			}
		})
	}
}

func TestAProblemWithoutAFileBeginsWithItsObject(t *testing.T) {
	p := Problem{Object: "Service a/b", Field: "spec", Message: "is wrong", Fix: "mend it"}
	if got := p.Error(); got != "Service a/b: spec: is wrong; mend it" {
		t.Errorf("got %s", got)
	}
}
