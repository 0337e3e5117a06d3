package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
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

func (cmds lifecycleCommands) versionCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "show the version of this program and of a running mesh",
		Example: `  lateen version -o json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmds.app.format(formats...)
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
			if engine, err := cmds.app.client().Version(cmd.Context()); err == nil {
				v.Mesh, v.Engine = engine.Mesh, engine.Version
			}
			if format.Structured() {
				return printer.Write(cmds.app.Stdout, format, v)
			}
			if err := cmds.app.printf("client: %s (%s)\n", v.Client, v.Go); err != nil {
				return err
			}
			if v.Mesh == "" {
				if err := cmds.app.choose(); err != nil {
					return cmds.app.printf("mesh: none named, and these run: %s\n", strings.Join(cmds.app.running(), ", "))
				}
				return cmds.app.printf("mesh %s: not running\n", cmds.app.mesh)
			}
			return cmds.app.printf("mesh %s: %s\n", v.Mesh, v.Engine)
		},
	}
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

func (cmds lifecycleCommands) completionCommand() *cobra.Command {
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
				return cmd.Root().GenBashCompletionV2(cmds.app.Stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(cmds.app.Stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(cmds.app.Stdout, true)
			}
			return usagef("unknown shell %q; use one of %v", args[0], shells)
		},
	}
}
