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
	above, rest, err := root.Find(args)
	if err != nil || !above.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	return above.ValidateArgs(rest[:1])
}

const helpVerb = "help"

// addHelpVerb adds cobra's verb for help, which of itself answers a verb that does not exist with the help of the one above it.
func addHelpVerb(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != helpVerb {
			continue
		}
		c.Args = func(_ *cobra.Command, args []string) error {
			above, rest, err := root.Find(args)
			if err != nil || !above.HasSubCommands() || len(rest) == 0 {
				return err
			}
			return unknownVerb(above, rest[0])
		}
	}
}

func unknownVerb(above *cobra.Command, verb string) error {
	var verbs []string
	for _, c := range above.Commands() {
		if c.IsAvailableCommand() || c.Name() == helpVerb {
			verbs = append(verbs, c.Name())
		}
	}
	return usageError{&api.Error{Message: fmt.Sprintf("unknown verb %q", verb), Cure: didYouMean("", spelling.Nearest(verb, verbs))}}
}

// unknownFlag adds to the error of a flag that does not exist the one that was probably meant. Behind a single dash that is a word of
// several letters, each of which is read as a flag of its own.
func unknownFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return err
	}
	word := missing.GetSpecifiedName()
	if letters, _, _ := strings.Cut(missing.GetSpecifiedShortnames(), "="); letters != "" {
		word = letters
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	return &api.Error{Message: err.Error(), Cure: didYouMean("--", spelling.Nearest(word, flags))}
}

func didYouMean(prefix, near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s%s?", prefix, near)
}
