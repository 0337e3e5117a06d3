package withdraw

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// ours is what the API server remembers of a write of the control plane into a list whose entries it does not tell apart, oursBy where it does.
const (
	ours   = `{manager: lateen-control, subresource: status, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:status": {"f:conditions": {}}}}`
	theirs = `{manager: other, subresource: status, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:status": {"f:conditions": {}}}}`
)

func oursBy(fields string) string {
	return `{manager: lateen-control, subresource: status, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:status": {` + fields + `}}}`
}

func byType(name string) string {
	return fmt.Sprintf(`"f:conditions": {'k:{"type":"%s"}': {"f:status": {}}}`, name)
}

func object(t *testing.T, kind, managed, status string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf("{kind: %s, metadata: {name: x, namespace: shop, resourceVersion: '5', uid: u, managedFields: [%s]}, status: %s}", kind, managed, status)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return u
}

func kindOf(name string) Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	return Kind{}
}

func TestWhatWasWrittenIsTakenBackAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct{ kind, managed, status, want string }{
		"nothing was written":        {"AuthorizationPolicy", ours, "{}", ""},
		"all of it":                  {"AuthorizationPolicy", ours, "{conditions: [{type: Accepted}, {type: lateen.dev/Programmed}]}", "null"},
		"another's stays":            {"AuthorizationPolicy", ours, "{conditions: [{type: Accepted}, {type: Reconciled}]}", `{"conditions":[{"type":"Reconciled"}]}`},
		"another's of the same type": {"AuthorizationPolicy", theirs, "{conditions: [{type: Accepted}]}", ""},
		"the mesh's own name":        {"AuthorizationPolicy", theirs, "{conditions: [{type: Accepted}, {type: lateen.dev/Programmed}]}", `{"conditions":[{"type":"Accepted"}]}`},
		"the rest of a status stays": {"ServiceEntry", ours, "{conditions: [{type: Accepted}], addresses: [{value: 240.240.0.1}]}", `{"conditions":null}`},
		"a service":                  {"Service", oursBy(byType("istio.io/WaypointBound")), "{loadBalancer: {}, conditions: [{type: istio.io/WaypointBound}]}", `{"conditions":null}`},
		"a service that is Istio's":  {"Service", theirs, "{loadBalancer: {}, conditions: [{type: istio.io/WaypointBound}]}", ""},
		"a gateway": {"Gateway", oursBy(`"f:conditions": {'k:{"type":"Accepted"}': {}, 'k:{"type":"Programmed"}': {}}, "f:listeners": {}, "f:addresses": {}`),
			"{conditions: [{type: Accepted}], listeners: [{name: a}], addresses: [{value: x}]}", "null"},
		"a gateway that is another's":           {"Gateway", theirs, "{conditions: [{type: Accepted}, {type: Programmed}], listeners: [{name: a}]}", ""},
		"a gateway with another's addresses":    {"Gateway", oursBy(byType("Accepted")), "{conditions: [{type: Accepted}], addresses: [{value: x}]}", `{"conditions":null}`},
		"a gateway with another's condition":    {"Gateway", oursBy(byType("Accepted")), "{conditions: [{type: Accepted}, {type: Programmed}]}", `{"conditions":[{"type":"Programmed"}]}`},
		"the deployer's condition":              {"Gateway", theirs, "{conditions: [{type: Accepted}, {type: lateen.dev/Deployed}]}", `{"conditions":[{"type":"Accepted"}]}`},
		"what is no condition is left as it is": {"AuthorizationPolicy", ours, "{conditions: [text, {type: Accepted}]}", `{"conditions":["text"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kindOf(c.kind).patch(object(t, c.kind, c.managed, c.status))
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if got != nil {
					t.Errorf("%s", got)
				}
				return
			}
			var patch struct {
				Metadata map[string]any
				Status   any
			}
			var want any
			if json.Unmarshal(got, &patch) != nil || json.Unmarshal([]byte(c.want), &want) != nil || !reflect.DeepEqual(patch.Status, want) || patch.Metadata["resourceVersion"] != "5" {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A listener has conditions of the same types as its Gateway, and fields of the same names may stand further inside.
func TestOfAGatewayOnlyWhatNobodyElseWroteIsTakenOut(t *testing.T) {
	other := func(fields string) string {
		return strings.Replace(oursBy(fields), "manager: lateen-control", "manager: other", 1)
	}
	mine := oursBy(byType("Accepted") + `, "f:listeners": {'k:{"name":"mesh"}': {}}`)
	for name, c := range map[string]struct{ managed, want string }{
		"another wrote a listener's condition": {mine + ", " + other(`"f:listeners": {'k:{"name":"mesh"}': {`+byType("Accepted")+`}}`), `{"conditions":[{"type":"Other"}]}`},
		"another wrote the same condition":     {mine + ", " + other(byType("Accepted")), `{"listeners":null}`},
		"another wrote the whole list":         {mine + ", " + other(`"f:conditions": {}`), `{"listeners":null}`},
		"another wrote another condition":      {mine + ", " + other(`"f:conditions": {".": {}, 'k:{"type":"Other"}': {".": {}}}`), `{"conditions":[{"type":"Other"}],"listeners":null}`},
		"only a listener's was written here":   {oursBy(`"f:listeners": {'k:{"name":"mesh"}': {` + byType("Accepted") + `}}`), `{"listeners":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Gateway(object(t, "Gateway", c.managed, "{conditions: [{type: Accepted}, {type: Other}], listeners: [{name: mesh}]}"))
			if err != nil {
				t.Fatal(err)
			}
			var patch struct{ Status any }
			var want any
			if json.Unmarshal(got, &patch) != nil || json.Unmarshal([]byte(c.want), &want) != nil || !reflect.DeepEqual(patch.Status, want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	unreadable := strings.Replace(other(""), `{"f:status": {}}`, "[]", 1)
	if got, err := Gateway(object(t, "Gateway", mine+", "+unreadable, "{conditions: [{type: Accepted}]}")); err == nil || got != nil {
		t.Errorf("what another wrote cannot be read, and %s is taken out", got)
	}
}

func TestOneKindThatCannotBeReadKeepsNoOther(t *testing.T) {
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range Kinds {
		for _, v := range k.Versions {
			lists[schema.GroupVersionResource{Group: k.Group, Version: v, Resource: k.Resource}] = k.Name + "List"
		}
	}
	policy := object(t, "AuthorizationPolicy", ours, "{conditions: [{type: Accepted}]}")
	policy.SetAPIVersion("security.istio.io/v1beta1")
	service := object(t, "Service", oursBy(byType("istio.io/WaypointBound")), "{loadBalancer: {}, conditions: [{type: istio.io/WaypointBound}]}")
	service.SetAPIVersion("v1")
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, policy, service)
	conflicts, patched := 2, map[string]string{}
	client.PrependReactor("*", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		of := a.GetResource()
		switch {
		case of.Group == "gateway.networking.k8s.io":
			return true, nil, apierrors.NewForbidden(of.GroupResource(), "", errors.New("no"))
		case of.Group == "security.istio.io" && of.Version == "v1":
			return true, nil, apierrors.NewNotFound(of.GroupResource(), "")
		case a.GetVerb() == "patch" && conflicts > 0:
			conflicts--
			return true, nil, apierrors.NewConflict(of.GroupResource(), "x", errors.New("it has changed"))
		case a.GetVerb() == "patch":
			patched[of.Resource+"/"+a.GetSubresource()] = string(a.(kubetesting.PatchAction).GetPatch())
			return true, policy, nil
		}
		return false, nil, nil
	})
	n, err := All(t.Context(), client)
	if n != 2 || err == nil || !strings.Contains(err.Error(), "gateways") || strings.Contains(err.Error(), "services") {
		t.Errorf("%d objects, %v", n, err)
	}
	if !strings.Contains(patched["services/status"], `"conditions":null`) || !strings.Contains(patched["authorizationpolicies/status"], `"status":null`) {
		t.Errorf("%v", patched)
	}
}
