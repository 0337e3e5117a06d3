package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install/render"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Annotations of the Gateway API on its definitions.
const (
	bundleVersion = wellknown.BundleVersion
	bundleChannel = wellknown.BundleChannel
)

// leave says why a definition that the cluster has stays as it is: it is somebody else's, or newer, or has more fields. It is an error if
// the mesh could not read its objects.
func leave(o, live *unstructured.Unstructured) (why string, err error) {
	if o.GetKind() == "CustomResourceDefinition" {
		wants, serves := served(o), served(live)
		if !slices.ContainsFunc(wants, func(v string) bool { return slices.Contains(serves, v) }) {
			refused := &api.Error{Code: 409, Message: fmt.Sprintf("the cluster's definition of %s serves %s; the mesh reads %s", o.GetName(), list(serves), list(wants)),
				Fix: "upgrade what installed the definition, or, if nothing needs it, delete it (which deletes all objects of its kind) and repeat the command"}
			if by := newerLateen(o, live); by != "" {
				refused.Fix = fmt.Sprintf("use the lateen of %s, which installed the definition: this one's control plane could read none of the objects", by)
			}
			return "", refused
		}
	}
	a := live.GetAnnotations()
	switch {
	case a[bundleChannel] == "experimental":
		return "it is of the experimental channel, which has more fields", nil
	case newer(a[bundleVersion], o.GetAnnotations()[bundleVersion]):
		return "it is of " + a[bundleVersion] + ", which is newer", nil
	case live.GetLabels()[managedBy] != lateen:
		return strings.TrimSpace("it was there before" + belongs(live)), nil
	}
	if by := newerLateen(o, live); by != "" {
		// Also where the mesh goes back: with the fields that only the newer one has, what users have written in them would be lost.
		return "it is of Lateen " + by + ", which is newer", nil
	}
	return "", nil
}

// newerLateen is the version of a newer Lateen that a definition in the cluster is of; empty if it is of none.
func newerLateen(o, live *unstructured.Unstructured) string {
	by := live.GetLabels()[wellknown.AppVersion]
	if live.GetLabels()[managedBy] != lateen || !Newer(by, o.GetLabels()[wellknown.AppVersion]) {
		return ""
	}
	return by
}

// retired are the steps for definitions of the mesh that this version has no more, or not yet, or that the values do not ask for: with one of
// them all objects of its kind would go, which is never what an upgrade is for.
func (c *Cluster) retired(ctx context.Context, o Options, want *wanted) ([]Step, error) {
	have, err := c.ownDefinitions(ctx)
	if err != nil {
		return nil, err
	}
	all, err := render.Chart(o.Charts, "lateen-crds", map[string]any{"gatewayAPI": true, "istio": true}, render.Release{Name: lateen, Namespace: o.Namespace})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, o := range all.Objects {
		known[called(o)] = true
	}
	wants := map[string]bool{}
	for _, o := range want.crds {
		wants[called(o)] = true
	}
	var steps []Step
	for _, o := range have {
		if wants[called(o)] {
			continue
		}
		by := o.GetLabels()[wellknown.AppVersion]
		why := fmt.Sprintf("it is of %s, and Lateen %s has none of the name", versioned(by), want.version)
		if known[called(o)] {
			why = "the values do not ask for it"
		}
		s := step(Keep, o, why+"; it stays, and all objects of its kind")
		s.newer = Newer(by, want.version)
		steps = append(steps, s)
	}
	return steps, nil
}

func versioned(by string) string {
	if by == "" {
		return "another version"
	}
	return "Lateen " + by
}

// stays says which definitions stay newer where the mesh goes back to an older version, and why.
func (p Plan) stays() string {
	return fmt.Sprintf("the mesh goes back from Lateen %s to %s, and these definitions stay those of the newer one: %s. An older definition would have the API server "+
		"drop, with the next write to an object, what is in fields that it does not know. While the older mesh runs such fields have no effect, and a policy with one counts in its strictest reading",
		p.From, p.Version, few(p.NewerDefinitions))
}

func newer(a, b string) bool {
	va, err := version.ParseGeneric(a)
	if err != nil {
		return false
	}
	vb, err := version.ParseGeneric(b)
	return err == nil && vb.LessThan(va)
}

// Newer says whether one version of Lateen is newer than another; one that is not known is not.
func Newer(a, b string) bool {
	va, err := version.ParseSemantic(a)
	if err != nil {
		return false
	}
	vb, err := version.ParseSemantic(b)
	return err == nil && vb.LessThan(va)
}

// refuseOlder keeps an older program from taking a newer mesh back where nobody asked for that: its control plane, agents and proxies may not know what
// the newer ones have written, and it deletes what it does not know itself.
func (r *Record) refuseOlder(than string, allowed bool) error {
	if r == nil || allowed || !Newer(r.Version, than) {
		return nil
	}
	return &api.Error{Code: 409, Message: fmt.Sprintf("Lateen %s is installed in namespace %s, and this program has %s, which is older: it would replace all parts by older ones", r.Version, r.Namespace, than),
		Fix: fmt.Sprintf("use the lateen of %s or later; if you do want to go back, repeat the command with --allow-downgrade, which leaves the definitions of %s as they are (--dry-run shows which)", r.Version, r.Version)}
}

// served are the versions that a definition serves.
func served(o *unstructured.Unstructured) []string {
	var out []string
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] != false {
			out = append(out, fmt.Sprint(m["name"]))
		}
	}
	return out
}

func list(items []string) string {
	if len(items) == 0 {
		return "nothing"
	}
	return strings.Join(items, ", ")
}

// established says whether a definition's kind can be used.
func established(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
}
