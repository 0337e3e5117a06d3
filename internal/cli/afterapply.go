package cli

import (
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// workloads are the kinds that have pods.
var workloads = []string{"Deployment", "Pod"}

// afterApply suggests how to look at objects that were applied: pods if there are workloads among them, else whether the objects that
// configure the mesh are in force, else the objects themselves.
func afterApply(results []api.ObjectResult) []string {
	applied := make([]api.Key, 0, len(results))
	for _, r := range results {
		applied = append(applied, r.Key)
	}
	of := func(kinds []string) []api.Key {
		return slices.DeleteFunc(slices.Clone(applied), func(k api.Key) bool { return !slices.Contains(kinds, k.Kind) })
	}
	if pods := of(workloads); len(pods) > 0 {
		return []string{"lateen get pods" + whereAll(pods), "lateen status"}
	}
	switch configuring := of(partial); len(configuring) {
	case 0:
		return []string{"lateen get " + pluralKinds(applied) + whereAll(applied), "lateen status"}
	case 1:
		return []string{"lateen wait " + calledBy(configuring[0]) + whereAll(configuring), "lateen get " + pluralKinds(configuring) + whereAll(configuring)}
	default:
		return []string{"lateen get " + pluralKinds(configuring) + whereAll(configuring), "lateen status"}
	}
}

// whereAll is the flag, with a space before it, with which a command covers the namespaces of all the objects.
func whereAll(keys []api.Key) string {
	var namespaces []string
	for _, k := range keys {
		if k.Namespace != "" && !slices.Contains(namespaces, k.Namespace) {
			namespaces = append(namespaces, k.Namespace)
		}
	}
	switch {
	case len(namespaces) > 1:
		return " -A"
	case len(namespaces) == 1 && namespaces[0] != "default":
		return " -n " + namespaces[0]
	}
	return ""
}

// pluralKinds are the kinds of objects as `lateen get` takes them, in the order of their first appearance.
func pluralKinds(keys []api.Key) string {
	var kinds []string
	for _, k := range keys {
		plural := k.Kind
		if known, ok := api.LookupKind(k.Kind); ok {
			plural = known.Plural
		}
		if !slices.Contains(kinds, plural) {
			kinds = append(kinds, plural)
		}
	}
	return strings.Join(kinds, ",")
}
