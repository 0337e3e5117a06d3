package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/source/files"
)

// dryRun is the value of --dry-run, as kubectl has it.
type dryRun string

const (
	dryRunNone   dryRun = "none"   // changes are made
	dryRunClient dryRun = "client" // the input is parsed and checked here; the mesh is not asked to change anything
	dryRunServer dryRun = "server" // the engine checks everything and changes nothing
)

var dryRuns = []string{string(dryRunServer), string(dryRunClient), string(dryRunNone)}

// dryRunFlag adds --dry-run. Without a value it means server.
func dryRunFlag(cmd *cobra.Command, value *dryRun) {
	*value = dryRunNone
	cmd.Flags().Var(value, "dry-run", "change nothing: server asks the mesh for the outcome, client only reads the input here")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(dryRunServer)
	register(cmd, "dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
}

// refuseValueApart makes a value of --dry-run behind a space an error. The parser reads such a value as an argument, because --dry-run
// needs none. The first argument of the command must never be one of the values.
func refuseValueApart(cmd *cobra.Command) {
	others := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.Flags().Changed("dry-run") && slices.Contains(dryRuns, args[0]) {
			return usageError{&api.Error{Message: fmt.Sprintf("unexpected argument %q", args[0]), Fix: "write --dry-run=" + args[0]}}
		}
		if others == nil {
			return nil
		}
		return others(cmd, args)
	}
}

// String implements pflag.Value.
func (d *dryRun) String() string { return string(*d) }

// Type implements pflag.Value; it stands in the help.
func (d *dryRun) Type() string { return "server|client|none" }

// Set implements pflag.Value.
func (d *dryRun) Set(text string) error {
	for _, known := range dryRuns {
		if text == known {
			*d = dryRun(text)
			return nil
		}
	}
	return usagef("use %s", strings.Join(dryRuns, ", "))
}

func (d dryRun) client() bool { return d == dryRunClient }
func (d dryRun) server() bool { return d == dryRunServer }

// suffix stands behind what a dry run prints.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (client dry run)"
	case dryRunServer:
		return " (dry run)"
	}
	return ""
}

// valid is the action of a client's dry run: nobody was asked whether the object is there.
const valid api.Action = "valid"

// checked is what can be said of documents without a mesh: whether each object is one, and which of its fields have no effect.
func checked(documents []api.Document, namespace string) api.ApplyResult {
	var result api.ApplyResult
	for _, d := range documents {
		objects, problems := files.Decode(d.File, d.Data)
		warnings := map[string][]string{}
		for _, p := range problems {
			if p.Severity == files.Refused {
				result.Problems = append(result.Problems, problemOf(p))
				continue
			}
			object := p.Object
			p.File, p.Line, p.Object = "", 0, ""
			warnings[object] = append(warnings[object], p.Error())
		}
		for _, o := range objects {
			key := api.Key{Group: api.SharedGroup(o.Key.Kind, o.Key.Group), Kind: o.Key.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name}
			if key.Namespace != "" && namespace != "" && !namesNamespace(o.JSON) {
				key.Namespace = namespace
			}
			result.Results = append(result.Results, api.ObjectResult{Key: key, Action: valid, Warnings: warnings[o.Key.String()]})
		}
	}
	return result
}

// checkedForDelete is what delete would ask for, as far as the documents tell.
func checkedForDelete(documents []api.Document, namespace string) api.ApplyResult {
	var result api.ApplyResult
	for _, d := range documents {
		objects, problems := files.Identities(d.File, d.Data)
		for _, p := range problems {
			result.Problems = append(result.Problems, problemOf(p))
		}
		for _, o := range objects {
			if o.Bare && namespace != "" {
				o.Key.Namespace = namespace
			}
			key := api.Key{Group: api.SharedGroup(o.Key.Kind, o.Key.Group), Kind: o.Key.Kind, Namespace: o.Key.Namespace, Name: o.Key.Name}
			result.Results = append(result.Results, api.ObjectResult{Key: key, Action: valid})
		}
	}
	return result
}

func problemOf(p files.Problem) api.Problem {
	return api.Problem{Severity: p.Severity.String(), File: p.File, Line: p.Line, Object: p.Object, Field: p.Field, Message: p.Message, Fix: p.Fix}
}

func namesNamespace(raw []byte) bool {
	var head struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	return json.Unmarshal(raw, &head) == nil && head.Metadata.Namespace != ""
}
