package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/spelling"
)

func (cmds changeCommands) applyCommand() *cobra.Command {
	var files []string
	var mode dryRun
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "create or change objects from YAML",
		Example: `  # The YAML that goes to a Kubernetes cluster; a directory stands for the YAML files in it.
  lateen apply -f samples/bookinfo/bookinfo.yaml
  lateen apply -f samples/bookinfo/policy

  # From standard input, and only checked: by the mesh, or without one.
  lateen apply -f - --dry-run < policy.yaml
  lateen apply -f policy.yaml --dry-run=client`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("missing flag: -f FILE")
			}
			documents, err := cmds.documents(files)
			if err != nil {
				return err
			}
			dryRun := mode.server()
			var result api.ApplyResult
			if mode.client() {
				result = checked(documents, cmds.app.namespace)
			} else if result, err = cmds.app.client().Apply(cmd.Context(), api.ApplyRequest{Documents: documents, Namespace: cmds.app.namespace, DryRun: dryRun}); err != nil {
				return err
			}
			if len(result.Results) == 0 && len(result.Problems) == 0 {
				return noObjects(files)
			}
			reported := cmds.report(result, mode.suffix())
			if mode.client() {
				return reported
			}
			if dryRun {
				(effects{cmds.app}).tellRehearsal(result)
			} else {
				(effects{cmds.app}).warnPartial(cmd.Context(), result)
			}
			if reported != nil {
				return reported
			}
			if !dryRun {
				cmds.app.next(afterApply(result.Results)...)
			}
			return nil
		},
	}
	fileFlag(cmd, &files)
	dryRunFlag(cmd, &mode)
	refuseValueApart(cmd)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

func fileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, "file or directory of YAML, or - for standard input (repeatable)")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(fmt.Sprintf("completion of --filename: %v", err))
	}
}

// report prints what became of the objects and fails if any document was refused: the good ones count nevertheless.
func (cmds changeCommands) report(result api.ApplyResult, suffix string) error {
	for _, r := range result.Results {
		if err := cmds.app.printf("%s %s%s\n", r.Key, r.Action, suffix); err != nil {
			return err
		}
		for _, warning := range r.Warnings {
			cmds.app.warn("%s: %s", r.Key, warning)
		}
	}
	for _, p := range result.Problems {
		where := p
		where.Fix = ""
		cmds.app.tellError(where.String(), p.Fix)
	}
	if len(result.Problems) > 0 {
		return exitStatus(ExitFailure)
	}
	return nil
}

// documents reads what -f names. A directory stands for its YAML and JSON files, in the order of their names.
func (cmds changeCommands) documents(names []string) ([]api.Document, error) {
	var documents []api.Document
	for _, name := range names {
		if name == "-" {
			data, err := io.ReadAll(cmds.app.input)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			dir, err := cmds.app.Getwd()
			if err != nil {
				return nil, fmt.Errorf("find the working directory: %w", err)
			}
			documents = append(documents, api.Document{File: "-", Dir: dir, Data: data})
			continue
		}
		files, err := manifests(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			document, err := cmds.readDocument(file)
			if err != nil {
				return nil, err
			}
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// noObjects is the error of files without an object.
func noObjects(files []string) error {
	names := slices.Clone(files)
	if i := slices.Index(names, "-"); i >= 0 {
		names[i] = "standard input"
	}
	return fmt.Errorf("no objects in %s", strings.Join(names, ", "))
}

func manifests(name string) ([]string, error) {
	if scheme, _, is := strings.Cut(name, "://"); is && (scheme == "http" || scheme == "https") {
		return nil, usageError{&api.Error{Message: "read " + name + ": an address on the network is not read", Fix: "curl -sSL " + name + " | lateen apply -f -"}}
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, reason(err))
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, reason(err))
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(name, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read %s: no .yaml, .yml or .json file in this directory", name)
	}
	return files, nil
}

func (cmds changeCommands) readDocument(file string) (api.Document, error) {
	data, err := cmds.app.readFile(file)
	if err != nil {
		return api.Document{}, fmt.Errorf("read %s: %w", file, reason(err))
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return api.Document{}, fmt.Errorf("read %s: %w", file, err)
	}
	return api.Document{File: file, Dir: filepath.Dir(absolute), Data: data}, nil
}

// reason drops the operation and path that package os puts in front: the message names the file already.
func reason(err error) error {
	if pathError, ok := err.(*fs.PathError); ok {
		return pathError.Err
	}
	return err
}

// keys reads "KIND NAME..." or "KIND/NAME...".
func keys(args []string, namespace string) ([]api.Key, error) {
	var found []api.Key
	if !strings.Contains(args[0], "/") {
		kind, err := lookupKind(args[0])
		if err != nil {
			return nil, err
		}
		if len(args) == 1 {
			return nil, usagef("missing argument: the name of a %s", kind.Name)
		}
		for _, name := range args[1:] {
			found = append(found, key(kind, api.NamedGroup(args[0]), namespace, name))
		}
		return found, nil
	}
	for _, arg := range args {
		word, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" {
			return nil, usagef("%q is not KIND/NAME", arg)
		}
		kind, err := lookupKind(word)
		if err != nil {
			return nil, err
		}
		found = append(found, key(kind, api.NamedGroup(word), namespace, name))
	}
	return found, nil
}

func key(kind api.Kind, group, namespace, name string) api.Key {
	if !kind.Namespaced {
		namespace = ""
	}
	return api.Key{Group: group, Kind: kind.Name, Namespace: namespace, Name: name}
}

// pluralOf writes kinds that were given by short names, separated by commas, by their plurals.
func pluralOf(words string) string {
	names := strings.Split(words, ",")
	for i, word := range names {
		if kind, err := lookupKind(word); err == nil {
			names[i] = kind.Plural
		}
	}
	return strings.Join(names, " or ")
}

// lookupKind finds a kind in any spelling. A word with a capital may be a kind that the engine keeps without knowing
// it well, so it is passed on; so is the plural or the lower case of one of those.
func lookupKind(word string) (api.Kind, error) {
	if kind, ok := api.LookupKind(word); ok {
		return kind, nil
	}
	name, namespaced, stored := files.KindNamed(word)
	if groups := api.SharedKind(name); len(groups) > 0 {
		return api.Kind{}, usageError{&api.Error{Message: fmt.Sprintf("unknown kind %q", word), Fix: fmt.Sprintf("the API groups with a %s are %s", name, strings.Join(groups, " and "))}}
	}
	if stored {
		return api.Kind{Name: name, Plural: word, Namespaced: namespaced}, nil
	}
	if word != "" && word != strings.ToLower(word) {
		return api.Kind{Name: word, Plural: word, Namespaced: true}, nil
	}
	if strings.TrimSuffix(strings.ToLower(word), "s") == "waypoint" {
		return api.Kind{}, usageError{&api.Error{Message: fmt.Sprintf("unknown kind %q", word), Fix: "`lateen waypoint list` shows waypoints; their objects are Gateways"}}
	}
	fix := didYouMean("", spelling.Nearest(word, kindWords()))
	if fix == "" {
		fix = "use one of " + strings.Join(kindNames(), ", ")
	}
	return api.Kind{}, usageError{&api.Error{Message: fmt.Sprintf("unknown kind %q", word), Fix: fix}}
}

func kindNames() []string {
	var names []string
	for _, kind := range api.Kinds() {
		names = append(names, kind.Plural)
	}
	return names
}

// kindWords are all words for kinds. Those that most use come first: of two that are as near a mistake is taken for the former.
func kindWords() []string {
	words := kindNames()
	for _, kind := range api.Kinds() {
		words = append(words, strings.ToLower(kind.Name))
	}
	for _, kind := range api.Kinds() {
		words = append(words, kind.Short...)
	}
	return words
}

// names lists the names of objects for completion; without a mesh there are none.
func (a *app) names(ctx context.Context, request api.GetRequest) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	list, err := a.client().Get(ctx, request)
	if err != nil {
		return nil
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Key.Name)
	}
	return names
}

func (a *app) completeKindAndName(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return kindNames(), cobra.ShellCompDirectiveNoFileComp
	}
	return a.names(cmd.Context(), api.GetRequest{Kind: args[0], Group: api.NamedGroup(args[0]), Namespace: a.namespace}), cobra.ShellCompDirectiveNoFileComp
}

// completeTarget completes pods by name and workloads as kind/name, for logs, exec and port-forward.
func (a *app) completeTarget(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	prefix, _, slash := strings.Cut(word, "/")
	kind := "pods"
	if slash {
		kind = prefix
	}
	names := a.names(cmd.Context(), api.GetRequest{Kind: kind, Namespace: a.namespace})
	if slash {
		for i := range names {
			names[i] = prefix + "/" + names[i]
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return append(names, "deploy/", "svc/"), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
