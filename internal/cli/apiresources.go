package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

func (cmds readCommands) apiResourcesCommand() *cobra.Command {
	formats := printer.Formats()
	var effective bool
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "list the kinds of objects, their short names, and which of them have an effect",
		Example: `  lateen api-resources
  lateen api-resources --effective -o wide`,
		Long: "EFFECT is which part acts on a kind in a local mesh: mesh (the control plane, and by it the node proxies), engine (the local\n" +
			"engine, in the place of Kubernetes) or none (objects are read and stored, and change nothing). -o wide says why.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			resources := apiResources()
			if effective {
				resources = slices.DeleteFunc(resources, func(r printer.APIResource) bool { return r.Effect == printer.EffectNone })
			}
			return printer.APIResources(cmds.app.Stdout, resources, format, cmds.app.width())
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "only kinds that have an effect")
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// engineKinds are the kinds that the local engine acts on in the place of Kubernetes.
var engineKinds = []string{"Namespace", "Node", "ServiceAccount", "Pod", "Service", "Deployment"}

// apiResources are all kinds that can be applied: those with a name in api.Kinds first, in that order.
func apiResources() []printer.APIResource {
	known := files.KnownKinds()
	var first, rest []printer.APIResource
	for _, k := range api.Kinds() {
		i := slices.IndexFunc(known, func(f files.KnownKind) bool { return f.Name == k.Name && group(f.APIVersion) == group(k.APIVersion) })
		if i < 0 {
			continue // every kind that has a short name can be applied: a test holds that
		}
		first = append(first, resource(known[i], k.Plural, k.Short))
		known = slices.Delete(known, i, i+1)
	}
	for _, k := range known {
		rest = append(rest, resource(k, plural(k.Name), nil))
	}
	return append(first, rest...)
}

// plural is the name of a kind's resource by the rules of English, which API groups follow.
func plural(kind string) string {
	word := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(word, "endpoints"):
		return word
	case strings.HasSuffix(word, "s"):
		return word + "es"
	case strings.HasSuffix(word, "y") && !strings.HasSuffix(word, "ay"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}

func group(apiVersion string) string {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return group
}

func resource(k files.KnownKind, plural string, short []string) printer.APIResource {
	r := printer.APIResource{Name: plural, ShortNames: short, APIVersion: k.APIVersion, Namespaced: k.Namespaced, Kind: k.Name, Effect: printer.EffectNone, Reason: k.Reason}
	switch {
	case slices.Contains(engineKinds, k.Name):
		r.Effect, r.Reason = printer.EffectEngine, ""
	case k.Support == model.Implemented:
		r.Effect, r.Reason = printer.EffectMesh, ""
	}
	return r
}
