package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lateen.dev/lateen/internal/cli/term"
)

// helpText is the help of a command. COLUMNS stands for the terminal's width. The examples come first: most people look for the
// line to copy.
const helpText = `{{folded COLUMNS (printf "%s: %s" .Name .Short)}}

{{if .HasExample}}Examples
{{examples COLUMNS .Example}}

{{end}}{{if .Long}}{{folded COLUMNS (trimTrailingWhitespaces .Long)}}

{{end}}Usage
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{if .HasAvailableSubCommands}}
Commands{{range .Commands}}{{if .IsAvailableCommand}}
{{commandLine COLUMNS .NamePadding .Name .Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags
{{flagLines COLUMNS .LocalFlags}}
{{end}}{{if .HasAvailableInheritedFlags}}
Flags of every command
{{flagLines COLUMNS .InheritedFlags}}
{{end}}
`

func init() {
	cobra.AddTemplateFunc("folded", folded)
	cobra.AddTemplateFunc("commandLine", commandLine)
	cobra.AddTemplateFunc("examples", examples)
	cobra.AddTemplateFunc("flagLines", flagLines)
}

// helpTemplate is the template for a terminal of that many columns; 0 folds nothing.
func helpTemplate(columns int) string {
	return strings.ReplaceAll(helpText, "COLUMNS", strconv.Itoa(columns))
}

// folded breaks each line of a text between its words.
func folded(columns int, text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, term.Fold(line, columns, 2)...)
	}
	return strings.Join(lines, "\n")
}

// commandLine is the line of a list of commands: a name of at least padding columns, and what the command does beside it.
func commandLine(columns, padding int, name, short string) string {
	lead := "  " + name + strings.Repeat(" ", max(padding-len(name), 0)) + " "
	room := max(columns-len(lead), 0)
	return lead + strings.Join(term.Fold(short, room, 0), "\n"+strings.Repeat(" ", len(lead)))
}

// examples folds the comments among examples. A command stays one line, which can be copied.
func examples(columns int, text string) string {
	const lead = "  # "
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		comment, is := strings.CutPrefix(line, lead)
		if !is {
			lines = append(lines, line)
			continue
		}
		for _, part := range term.Fold(comment, max(columns-len(lead), 0), 0) {
			lines = append(lines, lead+part)
		}
	}
	return strings.Join(lines, "\n")
}

// wrapSlop is how many columns a word of pflag's wrapped usages may exceed the width that it is asked for.
const wrapSlop = 5

// flagLines are the usages of flags, folded.
func flagLines(columns int, flags *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = flags.SortFlags
	flags.VisitAll(func(f *pflag.Flag) { shown.AddFlag(withOptionalForm(f)) })
	return strings.TrimRight(shown.FlagUsagesWrapped(max(columns-wrapSlop, 0)), " \n")
}

// withOptionalForm shows all forms of a value that may be left out, such as [=server|client|none]. pflag shows only the one that holds then, behind
// the forms and a space. A value behind a space would be an argument.
func withOptionalForm(f *pflag.Flag) *pflag.Flag {
	if f.NoOptDefVal == "" || !strings.Contains(f.Value.Type(), "|") {
		return f
	}
	shown := *f
	shown.NoOptDefVal, shown.Usage = f.Value.Type(), "``"+f.Usage // the empty name takes the place of the type
	return &shown
}
