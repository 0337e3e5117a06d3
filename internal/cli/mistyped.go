package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/spelling"
)

// misspeltVerb is the error of a verb that does not exist. It is looked for first: the flags behind such a verb are unknown to the
// command above it, and an error about one of them would lead the reader away from the mistake.
func misspeltVerb(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	above, rest, err := root.Find(args)
	if err != nil || !above.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	return above.ValidateArgs(rest[:1])
}

func unknownVerb(above *cobra.Command, verb string) error {
	var verbs []string
	for _, c := range above.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	return usageError{&api.Error{Message: fmt.Sprintf("unknown verb %q", verb), Cure: didYouMean("", spelling.Nearest(verb, verbs))}}
}

// unknownFlag adds to the error of a flag that does not exist the one that was probably meant.
func unknownFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return err
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	return &api.Error{Message: err.Error(), Cure: didYouMean("--", spelling.Nearest(missing.GetSpecifiedName(), flags))}
}

func didYouMean(prefix, near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s%s?", prefix, near)
}
