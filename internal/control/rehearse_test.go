package control

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/status"
)

// methodsOnly is an ALLOW policy of which node proxies can judge nothing.
const methodsOnly = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: l7, namespace: shop}
spec: {selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET]}}]}]}
`

func (p *program) rehearse(documents string) (int, string) {
	p.t.Helper()
	resp, err := http.Post("http://"+p.control.DebugAddr().String()+"/debug/analysis", "application/yaml", strings.NewReader(documents))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A page of another site may send plain text through a port-forward. It gets no rehearsal, which costs as much as a start.
func TestARehearsalTakesDocumentsAlone(t *testing.T) {
	p := run(t, t.TempDir())
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
		resp, err := http.Post("http://"+p.control.DebugAddr().String()+"/debug/analysis", kind, strings.NewReader(methodsOnly))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%q: %s", kind, resp.Status)
		}
	}
}

// What a rehearsal says of a policy is what is said of it once it is applied, and the rehearsal leaves nothing behind.
func TestARehearsalSaysWhatApplyingWillSay(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("base.yaml", base+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/dataplane-mode: ambient}}\n")
	var objects []status.Object
	eventually(t, "the namespace", func() bool { p.debug("/debug/objects?kind=Namespace", &objects); return len(objects) == 1 })

	code, body := p.rehearse(methodsOnly)
	var said status.Rehearsal
	if err := json.Unmarshal([]byte(body), &said); err != nil || code != http.StatusOK || len(said.Objects) != 1 {
		t.Fatalf("%d %s: %v", code, body, err)
	}
	before := said.Objects[0]
	if len(before.Conditions) != 1 || before.Conditions[0].Reason != "UnsupportedValue" || len(before.Findings) != 1 ||
		!strings.HasPrefix(before.Findings[0].Message, "refuses ALL connections to 1 pod (web-1): node proxies cannot judge methods") {
		t.Errorf("got %s", body)
	}
	p.debug("/debug/objects?kind=AuthorizationPolicy", &objects)
	if len(objects) != 0 {
		t.Errorf("the rehearsal left %+v", objects)
	}

	p.write("l7.yaml", methodsOnly)
	eventually(t, "the policy", func() bool {
		p.debug("/debug/objects?kind=AuthorizationPolicy", &objects)
		return len(objects) == 1 && len(objects[0].Conditions) == 1
	})
	if o := objects[0]; o.Conditions[0].Message != before.Conditions[0].Message || len(o.Findings) != 1 || o.Findings[0].Message != before.Findings[0].Message {
		t.Errorf("applied: %+v, rehearsed: %+v", o, before)
	}
	var page status.Analysis
	if p.debug("/debug/analysis?kind=authorizationpolicy", &page); len(page.Findings) != 1 || page.Findings[0].Code != "refuses-all" {
		t.Errorf("the analysis page: %+v", page)
	}
	if p.debug("/debug/analysis?name=another", &page); len(page.Findings) != 0 {
		t.Errorf("the analysis page of another object: %+v", page)
	}
}

func TestARehearsalRefusesWhatCannotBeRead(t *testing.T) {
	p := run(t, t.TempDir())
	if code, body := p.rehearse(strings.Replace(methodsOnly, "methods", "methodz", 1)); code != http.StatusBadRequest || !strings.Contains(body, "methodz") {
		t.Errorf("%d %s", code, body)
	}
}
