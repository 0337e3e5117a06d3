package control

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// What a proxy refuses is said of the object that its author wrote, until the proxy takes another version of it or is gone.
func TestAProxysRefusalIsAConditionOfTheObject(t *testing.T) {
	p := run(t, t.TempDir())
	policy := func(name, from string) {
		p.write(name+".yaml", fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: shop}\nspec: {rules: [{from: [{source: {namespaces: [%s]}}]}]}\n", name, from))
	}
	p.write("engine.yaml", base)
	conditions := func(name string) (out map[string]model.Condition) {
		var objects []struct {
			Kind, Name string
			Conditions []model.Condition
		}
		p.debug("/debug/objects", &objects)
		for _, o := range objects {
			if o.Kind == "AuthorizationPolicy" && o.Name == name {
				out = map[string]model.Condition{}
				for _, c := range o.Conditions {
					out[c.Type] = c
				}
			}
		}
		return out
	}
	refused := func(name string) bool {
		c, ok := conditions(name)["lateen.dev/Programmed"]
		return ok && c.Status == model.False && c.Reason == "RefusedByProxy" && strings.Contains(c.Message, "the proxy of node n1 refuses it: shop/"+name+": not understood")
	}
	x := p.proxy()
	x.refuse("shop/a")
	policy("a", "s1")
	policy("a-b", "s1")
	eventually(t, "the refusal is a condition", func() bool { return refused("a") })
	eventually(t, "the other is known", func() bool { return x.knows("shop/a-b") })
	if c := conditions("a-b"); c["lateen.dev/Programmed"].Type != "" || c["Accepted"].Status != model.True {
		t.Errorf("the other policy: %+v", c)
	}
	if c := conditions("a")["Accepted"]; c.Status != model.True {
		t.Errorf("what the control plane says is gone: %+v", c)
	}

	x.refuse("")
	policy("a", "s2")
	eventually(t, "the condition is gone with the version", func() bool {
		c := conditions("a")
		return c["Accepted"].Status == model.True && c["lateen.dev/Programmed"].Type == ""
	})

	x.refuse("shop/a")
	policy("a", "s3")
	eventually(t, "the next refusal is a condition", func() bool { return refused("a") })
	x.hangUp()
	eventually(t, "the condition is gone with the proxy", func() bool { return conditions("a")["lateen.dev/Programmed"].Type == "" })
}
