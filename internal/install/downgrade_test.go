package install

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/model/wellknown"
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
					if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, x.there) || !strings.Contains(e.Fix, "--allow-downgrade") {
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

// meshed is a cluster with a mesh of this version, as an installation leaves it.
func meshed(t *testing.T) *Cluster {
	t.Helper()
	c := cluster(t)
	i, err := c.Prepare(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// newerDefinition gives the cluster a definition as a newer Lateen would have made it.
func newerDefinition(t *testing.T, c *Cluster, name, version string) *unstructured.Unstructured {
	t.Helper()
	o := named("CustomResourceDefinition", "", name)
	live, err := c.objects().get(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if live != nil {
		o = live
	}
	own(o)
	labels := o.GetLabels()
	labels[wellknown.AppVersion] = version
	o.SetLabels(labels)
	c.put(t, o)
	return o
}

const entries, policies, later = "serviceentries.networking.istio.io", "authorizationpolicies.security.istio.io", "meshes.later.example"

func TestNewerDefinitionsStayWhereTheMeshGoesBackAndThePlanSaysSo(t *testing.T) {
	c := meshed(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, Version: "9.9.9", State: stateInstalled})
	newerDefinition(t, c, entries, "9.9.9")
	newerDefinition(t, c, later, "9.9.9") // this version has none of the name
	o := options()
	o.AllowDowngrade = true
	i, err := c.PrepareUpgrade(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]Step{}
	for _, s := range i.Plan.Steps {
		if s.Kind == "CustomResourceDefinition" {
			kept[s.Name] = s
		}
	}
	for _, name := range []string{entries, later} {
		if s := kept[name]; s.Action != Keep || !strings.Contains(s.Why, "9.9.9") {
			t.Errorf("%s: %q, %q", name, s.Action, s.Why)
		}
	}
	if s := kept[policies]; s.Action == Keep {
		t.Errorf("one of this version is left alone: %s", s.Why)
	}
	if slices.Sort(i.Plan.NewerDefinitions); !slices.Equal(i.Plan.NewerDefinitions, []string{later, entries}) {
		t.Errorf("%v are said to be newer", i.Plan.NewerDefinitions)
	}
	if w := strings.Join(i.Plan.Warnings, "\n"); !strings.Contains(w, "from Lateen 9.9.9 to "+i.Plan.Version) || !strings.Contains(w, entries) || !strings.Contains(w, later) || !strings.Contains(w, "drop") {
		t.Errorf("it warns: %q", w)
	}
	if err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{entries, later} {
		if live, err := c.objects().get(t.Context(), named("CustomResourceDefinition", "", name)); err != nil || live.GetLabels()[wellknown.AppVersion] != "9.9.9" {
			t.Errorf("%s was changed: %v %v", name, live.GetLabels(), err)
		}
	}
}

// With it all objects of its kind would go.
func TestADefinitionThatThisVersionHasNoMoreStays(t *testing.T) {
	c := meshed(t)
	newerDefinition(t, c, later, "0.0.1")
	i, err := c.PrepareUpgrade(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(i.Plan.Steps, func(s Step) bool { return s.Name == later })
	if at < 0 || i.Plan.Steps[at].Action != Keep || !strings.Contains(i.Plan.Steps[at].Why, "Lateen 0.0.1") {
		t.Errorf("%+v", i.Plan.Steps)
	}
	if len(i.Plan.NewerDefinitions)+len(i.Plan.Warnings) > 0 {
		t.Errorf("%v %v", i.Plan.NewerDefinitions, i.Plan.Warnings)
	}
}

// Nor do those go that the values ask for no more, and nobody is told that they are another version's.
func TestADefinitionThatTheValuesDoNotAskForStays(t *testing.T) {
	c := meshed(t)
	o := options()
	o.Values = map[string]any{"istio": false}
	i, err := c.PrepareUpgrade(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(i.Plan.Steps, func(s Step) bool { return s.Name == policies })
	if at < 0 || i.Plan.Steps[at].Action != Keep || !strings.Contains(i.Plan.Steps[at].Why, "the values do not ask for it") {
		t.Errorf("%+v", i.Plan.Steps)
	}
}

func TestWhatOnlyANewerMeshCanReadIsNotGivenToAnOlderOne(t *testing.T) {
	c := meshed(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, Version: "9.9.9", State: stateInstalled})
	o := newerDefinition(t, c, entries, "9.9.9")
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "v7", "served": true}}, "spec", "versions")
	c.put(t, o)
	options := options()
	options.AllowDowngrade = true
	_, err := c.PrepareUpgrade(t.Context(), options)
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "serves v7") || !strings.Contains(e.Fix, "use the lateen of 9.9.9") || strings.Contains(e.Fix, "delete") {
		t.Errorf("%v", e)
	}
}
