package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// version is set by the linker for releases; a build from source is named by its commit.
var version string

// Version is this program's, whichever part it plays: the command or the engine of a mesh.
func Version() string {
	if version != "" {
		return version
	}
	revision, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = setting.Value[:min(12, len(setting.Value))]
			case setting.Key == "vcs.modified" && setting.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return "dev"
	}
	return "dev-" + revision + dirty
}

func (a *app) versionCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "show the version of this program and of a running mesh",
		Example: `  lateen version -o json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := a.format(formats...)
			if err != nil {
				return err
			}
			type versions struct {
				Client string `json:"client"`
				Go     string `json:"go"`
				Mesh   string `json:"mesh,omitempty"`
				Engine string `json:"engine,omitempty"`
			}
			v := versions{Client: Version(), Go: runtime.Version()}
			// Without a mesh the client's own version is the whole answer.
			if engine, err := a.client().Version(cmd.Context()); err == nil {
				v.Mesh, v.Engine = engine.Mesh, engine.Version
			}
			if format.Structured() {
				return printer.Write(a.Stdout, format, v)
			}
			if err := a.printf("client: %s (%s)\n", v.Client, v.Go); err != nil {
				return err
			}
			if v.Mesh == "" {
				if err := a.choose(); err != nil {
					return a.printf("mesh: none named, and these run: %s\n", strings.Join(a.running(), ", "))
				}
				return a.printf("mesh %s: not running\n", a.mesh)
			}
			return a.printf("mesh %s: %s\n", v.Mesh, v.Engine)
		},
	}
	a.outputFlag(cmd, formats...)
	return cmd
}

func (a *app) statusCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.Wide, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show nodes, proxies, enrolled pods with their identity, and what needs attention",
		Example: `  lateen status
  lateen status -o json | jq '.pods[] | {name, mesh, identity}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := a.format(formats...)
			if err != nil {
				return err
			}
			status, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			partial, err := a.partlyLive(cmd.Context(), status)
			if err != nil {
				return err
			}
			status.Problems = append(status.Problems, partial...)
			a.addressAll(&status)
			if format.Structured() {
				return printer.Write(a.Stdout, format, status)
			}
			return printer.Status(a.hints(a.Stdout), status, a.Out, format == printer.Wide, a.Now())
		},
	}
	a.outputFlag(cmd, formats...)
	return cmd
}

// partlyLive names the objects of which only a part is in force, or nothing. They are no problem to the control plane, but their
// author should know. What was written for the cluster rather than for the mesh is left out where nothing of it is: Services, and on
// Kubernetes the Gateways of others.
func (a *app) partlyLive(ctx context.Context, status api.Status) ([]api.Problem, error) {
	var found []api.Problem
	if len(status.Unknown) > 0 {
		return nil, nil // nobody answers; what the cluster tells is among the problems
	}
	for _, kind := range partial {
		list, err := a.client().Get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
		if err != nil {
			return nil, err
		}
		for _, object := range list.Items {
			state, reason := printer.State(object)
			foreign := kind == "Service" || kind == "Gateway" && status.Engine == api.Kubernetes && strings.HasPrefix(reason, "NotImplemented")
			name := fmt.Sprintf("%s %s/%s", kind, object.Key.Namespace, object.Key.Name) // as the control plane writes it in problems
			told := slices.ContainsFunc(status.Problems, func(p api.Problem) bool { return p.Object == name })
			if state == printer.StatePartial || state == printer.StateIneffective && !foreign && !told {
				found = append(found, api.Problem{Object: name, Message: reason})
			}
		}
	}
	return found, nil
}

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "print the completion script of a shell",
		Example: `  source <(lateen completion bash)
  lateen completion fish > ~/.config/fish/completions/lateen.fish`,
		ValidArgs: shells,
		Args:      exactly(1, "SHELL: bash, zsh or fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.Stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(a.Stdout, true)
			}
			return usagef("unknown shell %q; use one of %v", args[0], shells)
		},
	}
}
