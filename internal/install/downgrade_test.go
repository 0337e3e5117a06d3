package install

import (
	"context"
	"strings"
	"testing"
)

func TestANewerMeshIsNotBroughtBackUnasked(t *testing.T) {
	for _, x := range []struct {
		there   string
		refused bool
	}{{"9.9.9", true}, {"0.0.9", false}, {"", false}, {"unknown", false}} {
		for _, state := range []string{stateInstalled, stateInstalling, stateUninstalling} {
			c := cluster(t)
			recorded(t, c, &Record{Namespace: DefaultNamespace, Version: x.there, State: state})
			prepare := []func(context.Context, Options) (*Installation, error){c.PrepareUpgrade}
			if state == stateInstalling {
				prepare = append(prepare, c.Prepare)
			}
			for _, p := range prepare {
				i, err := p(t.Context(), options())
				if x.refused {
					if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, x.there) || !strings.Contains(e.Cure, "--allow-downgrade") {
						t.Errorf("%s, %s: %v", x.there, state, e)
					}
				} else if err != nil || i.Plan.From != x.there {
					t.Errorf("%s, %s: from %q, %v", x.there, state, i.Plan.From, err)
				}
				o := options()
				o.AllowDowngrade = true
				if i, err := p(t.Context(), o); err != nil || i.Plan.From != x.there {
					t.Errorf("%s, %s, asked for: %v", x.there, state, err)
				}
			}
		}
	}
}

func TestNewerDefinitionsStay(t *testing.T) {
	c := cluster(t)
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	const name = "serviceentries.networking.istio.io"
	live, err := c.get(t.Context(), named("CustomResourceDefinition", "", name))
	if err != nil || live.GetLabels()["app.kubernetes.io/version"] != i.Plan.Version {
		t.Fatalf("%v %v", live.GetLabels(), err)
	}
	labels := live.GetLabels()
	labels["app.kubernetes.io/version"] = "9.9.9"
	live.SetLabels(labels)
	c.put(t, live)
	o := options()
	o.AllowDowngrade = true
	if i, err = c.PrepareUpgrade(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, s := range i.Plan.Steps {
		if s.Name == name && (s.Action != Keep || !strings.Contains(s.Why, "9.9.9")) {
			t.Errorf("%s: %s", s.Action, s.Why)
		}
	}
}
