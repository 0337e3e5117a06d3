package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/spelling"
)

// misspeltCommand is the error of a command that does not exist. It is looked for first: the flags behind such a command are unknown to the
// command above it, and an error about one of them would lead the reader away from the mistake.
func misspeltCommand(root *cobra.Command, args []string) error {
	above, rest, err := root.Find(args)
	if err != nil || !above.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	if err := above.ValidateArgs(rest[:1]); err != nil {
		return unknownCommand(above, rest[0], rest[1:]...)
	}
	return nil
}

const (
	helpName = "help"
	execName = "exec"
)

// addHelpCommand adds cobra's help command, which of itself answers a command that does not exist with the help of the one above it.
func addHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != helpName {
			continue
		}
		c.Args = func(_ *cobra.Command, args []string) error {
			above, rest, err := root.Find(args)
			if err != nil || !above.HasSubCommands() || len(rest) == 0 {
				return err
			}
			return unknownCommand(above, rest[0], rest[1:]...)
		}
	}
}

// unknownCommand is the error of a command that does not exist, with the one that was probably meant: that of a word of another program, else
// the nearest in spelling. rest are the arguments behind it.
func unknownCommand(above *cobra.Command, verb string, rest ...string) error {
	if b, known, ok := bridgeFor(verb, rest); ok && !above.HasParent() {
		return b.error(verb, known)
	}
	if known := strings.TrimPrefix(above.CommandPath(), above.Root().Name()+" ") + " " + verb; above.HasParent() {
		if b, ok := bridges[known]; ok {
			return b.error(verb, known)
		}
	}
	var verbs []string
	for _, c := range above.Commands() {
		if c.IsAvailableCommand() || c.Name() == helpName {
			verbs = append(verbs, c.Name())
		}
	}
	return usageError{&api.Error{Message: fmt.Sprintf("unknown command %q", verb), Fix: didYouMean("", spelling.Nearest(verb, verbs))}}
}

// wrongFlag adds to the error of a flag that does not exist the one that was probably meant, and words that of a value. Behind a single dash that is a word of
// several letters, each of which is read as a flag of its own.
func wrongFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return unreadableValue(err)
	}
	word := missing.GetSpecifiedName()
	if letters, _, _ := strings.Cut(missing.GetSpecifiedShortnames(), "="); letters != "" {
		word = letters
	}
	if answer := flagBridges[word]; answer != "" {
		return &api.Error{Message: err.Error(), Fix: answer}
	}
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	return &api.Error{Message: err.Error(), Fix: didYouMean("--", spelling.Nearest(word, flags))}
}

// unreadableValue words the error of a flag's value by the type of the flag: the parser tells which of its functions failed. An error of
// another kind is returned as it is.
func unreadableValue(err error) error {
	var unreadable *pflag.InvalidValueError
	if !errors.As(err, &unreadable) {
		return err
	}
	flag := unreadable.GetFlag()
	message := func(what string) string { return fmt.Sprintf("--%s: %q %s", flag.Name, unreadable.GetValue(), what) }
	if errors.Is(err, strconv.ErrRange) {
		return &api.Error{Message: message("is out of range"), Fix: "give a smaller number"}
	}
	switch flag.Value.Type() {
	case "bool":
		return &api.Error{Message: message("is neither true nor false"), Fix: fmt.Sprintf("--%s or --%[1]s=false", flag.Name)}
	case "duration":
		return &api.Error{Message: message("is not a duration"), Fix: "write a number with its unit, such as 500ms, 30s or 2m"}
	case "float64Slice":
		return &api.Error{Message: message("is not a list of numbers"), Fix: "write numbers with commas between them, such as 1,2.5"}
	case "int", "int64":
		return &api.Error{Message: message("is not a whole number"), Fix: "write digits alone, such as 2"}
	case "uint64":
		return &api.Error{Message: message("is not a whole number of 0 or more"), Fix: "write digits alone, such as 2"}
	}
	return err
}

// oneDash is the error of a flag's name behind a single dash. It is looked for in what was typed: to the parser -namespace is the flag -n
// with the value amespace, and nobody would hear of it.
func oneDash(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // it is still being typed
	}
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.DisableFlagParsing {
		return nil // another mistake, which has an error of its own
	}
	cmd.InitDefaultHelpFlag()
	flags := cmd.Flags()
	flags.AddFlagSet(cmd.InheritedFlags())
	for words := 0; len(rest) > 0 && rest[0] != "--"; {
		word := rest[0]
		rest = rest[1:]
		name, _, valued := strings.Cut(strings.TrimLeft(word, "-"), "=")
		var last *pflag.Flag
		switch {
		case strings.HasPrefix(word, "--"):
			last = flags.Lookup(name)
		case !strings.HasPrefix(word, "-"):
			if words++; words > 1 && cmd.Name() == execName {
				return nil // another program's; that -- is missing before it has an error of its own
			}
		case len(name) > 1 && flags.Lookup(name) != nil:
			return usageError{&api.Error{Message: fmt.Sprintf("unknown flag: -%s", name), Fix: didYouMean("--", name) + asValue(flags, name)}}
		default:
			last, valued = lastOf(flags, name, valued)
		}
		if last != nil && !valued && last.NoOptDefVal == "" && len(rest) > 0 {
			rest = rest[1:] // its value, whatever that looks like
		}
	}
	return nil
}

// lastOf is the last flag of a word of letters, and whether its value is in the word.
func lastOf(flags *pflag.FlagSet, letters string, valued bool) (last *pflag.Flag, has bool) {
	for i := range len(letters) {
		last = flags.ShorthandLookup(letters[i : i+1])
		if last == nil {
			return nil, false
		}
		if last.NoOptDefVal == "" {
			return last, valued || i < len(letters)-1
		}
	}
	return last, valued
}

// asValue says how the rest of a word is written for whoever meant it as the value of the word's first letter.
func asValue(flags *pflag.FlagSet, word string) string {
	if f := flags.ShorthandLookup(word[:1]); f != nil && f.NoOptDefVal == "" {
		return fmt.Sprintf(" The value %q of -%s is written -%s=%s", word[1:], f.Shorthand, f.Shorthand, word[1:])
	}
	return ""
}

func didYouMean(prefix, near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %s%s?", prefix, near)
}
