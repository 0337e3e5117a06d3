package cli

import (
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

// The commands that take neither --name nor the flags of a cluster: they are about no mesh, or about meshes of their own.
var aboutNoMesh = []string{"list", "version", "completion", "help", "demo", "lab"}

// The commands that are about a cluster alone.
var aboutClusters = []string{"install", "upgrade", "uninstall"}

// suggestion finds the name of this program with the words behind it that could be a command.
var suggestion = regexp.MustCompile(`(^|[^A-Za-z0-9_.-])lateen((?: [a-z][a-z-]*)+)`)

// addressed returns a text with the flags that its suggested commands need to reach the same mesh: --name, or --kubeconfig and
// --context. A suggestion is the word lateen with the name of a command behind it. One that has such flags is left as it is.
//
// The engine, the control plane and the checks do not know how the user reached the mesh. All their texts for people therefore pass
// here before they are printed.
func (a *app) addressed(text string) string {
	if a.root == nil || !strings.Contains(text, "lateen ") {
		return text
	}
	var out strings.Builder
	for {
		at := suggestion.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		command := a.commandIn(strings.Fields(text[at[4]:at[5]]))
		end := at[4]
		for _, word := range command {
			end += 1 + len(word)
		}
		if len(command) > 0 && !hasTarget(command[0], text[end:]) {
			quoted := at[3] > 0 && text[at[3]-1] == '`'
			end += argumentsEnd(command[0], text[end:], quoted)
			out.WriteString(text[:end])
			out.WriteString(a.flagsFor(command[0]))
		} else {
			out.WriteString(text[:end])
		}
		text = text[end:]
	}
	return out.String() + text
}

// behindArguments are the forms in text after which words are no arguments of this program: another command, a comment and a redirection.
var behindArguments = []string{" -- ", "   #", " # ", " | ", " < ", " > ", " && ", "; "}

// argument finds a word that can only be an argument of the command before it: KIND/NAME, a namespace and a few flags without a value.
var argument = regexp.MustCompile(`^ (?:[a-z]+/[A-Za-z0-9*-]+(?:\.[A-Za-z0-9*-]+)*|-n [a-z0-9-]+|-A|-o [a-z]+)`)

// kindArgument finds the kinds behind a command that reads one.
var kindArgument = regexp.MustCompile(`^ ([a-z]+(?:,[a-z]+)*)`)

// argumentsEnd is the length of the arguments that rest begins with, behind a command. The flags of the mesh come after them, where they are
// easy to overlook. In a quoted command they reach to its end. Elsewhere prose may follow, and only words that cannot be prose count.
func argumentsEnd(command, rest string, quoted bool) int {
	if end := strings.IndexAny(rest, "`\n"); quoted && end >= 0 && rest[end] == '`' {
		for _, mark := range behindArguments {
			if at := strings.Index(rest[:end], mark); at >= 0 {
				end = at
			}
		}
		return end
	}
	end := 0
	if found := kindArgument.FindStringSubmatch(rest); found != nil && slices.Contains(readsKind, command) {
		if !slices.ContainsFunc(strings.Split(found[1], ","), func(word string) bool { _, ok := api.LookupKind(word); return !ok }) {
			end = len(found[0])
		}
	}
	for {
		found := argument.FindString(rest[end:])
		if found == "" {
			return end
		}
		end += len(found)
	}
}

// readsKind are the commands that take a kind of objects as their first argument.
var readsKind = []string{"get", "describe", "label", "annotate", "delete"}

// commandIn is the longest path of commands that words begin with.
func (a *app) commandIn(words []string) []string {
	at := a.root
	for i, word := range words {
		next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
		if next < 0 {
			return words[:i]
		}
		at = at.Commands()[next]
	}
	return words
}

// hasTarget reports whether the rest of a suggestion, up to its end, names a mesh or a cluster itself.
func hasTarget(command, rest string) bool {
	if end := strings.IndexAny(rest, "`\n;"); end >= 0 {
		rest = rest[:end]
	}
	if next := strings.Index(rest, "lateen "); next >= 0 {
		rest = rest[:next]
	}
	flag := meshOption(command)
	return slices.ContainsFunc(strings.Fields(rest), func(word string) bool {
		return strings.HasPrefix(word, flag) && !strings.HasPrefix(word, "--names") || strings.HasPrefix(word, "--context") || strings.HasPrefix(word, "--kubeconfig")
	})
}

// meshOption is the flag by which a command takes the name of a mesh. That of a waypoint is called --name in istioctl.
func meshOption(command string) string {
	if command == "waypoint" {
		return "--mesh"
	}
	return "--name"
}

// flagsFor are the flags, each with a space before it, that a suggested command needs to be about the mesh of this one.
func (a *app) flagsFor(command string) string {
	switch {
	case slices.Contains(aboutNoMesh, command):
		return ""
	case slices.Contains(aboutClusters, command):
		return (installCommands{a}).clusterFlags()
	case command == "up" && !a.onCluster():
		if _ = a.choose(); a.mesh == api.DefaultMesh || a.chosen.err != nil {
			return "" // a mesh that nobody names is started with this name
		}
	}
	return strings.Replace(a.meshFlag(), " --name ", " "+meshOption(command)+" ", 1)
}

// onCluster reports whether the mesh is a cluster's, as far as is known by now.
func (a *app) onCluster() bool {
	choice, err := a.choice()
	return err == nil && (choice == engineKubernetes || a.reachedCluster.Load())
}

// meshFlag is the flag that a suggested command needs to be about the same mesh, with a space before it: --name, or those of a cluster.
// It is empty if the mesh is the one that a command without flags is about.
func (a *app) meshFlag() string {
	if a.onCluster() {
		return (installCommands{a}).clusterFlags()
	}
	if err := a.choose(); err != nil {
		return ""
	}
	if a.mesh == api.DefaultMesh && !a.chosen.byFlag && !a.chosen.others(a) {
		return ""
	}
	return " --name " + a.mesh
}

// addressAll passes all strings of a value, which is a pointer, through addressed. Bytes, such as objects as users wrote them, and the
// keys of maps stay as they are.
func (a *app) addressAll(value any) { a.addressIn(reflect.ValueOf(value)) }

func (a *app) addressIn(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(a.addressed(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			a.addressIn(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				a.addressIn(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			a.addressIn(v.Index(i))
		}
	}
}

// hints is a writer that passes the lines for people through addressed on their way to w.
func (a *app) hints(w io.Writer) io.Writer { return &hintWriter{a, w} }

type hintWriter struct {
	app *app
	w   io.Writer
}

// Write implements io.Writer for whole lines, which is how package printer writes.
func (h *hintWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.app.addressed(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
