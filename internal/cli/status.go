package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// watchEvery is how often status -w looks: a look costs every part of the mesh a question.
const watchEvery = 2 * time.Second

// statusOptions are the flags of status.
type statusOptions struct {
	namespace bool // a namespace was given
	selector  string
	pods      bool
	watch     bool
	format    printer.Format
}

func (cmds statusCommands) statusCommand() *cobra.Command {
	var o statusOptions
	formats := []printer.Format{printer.Table, printer.Wide, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show nodes, proxies, enrolled pods with their identity, and what needs attention",
		Example: `  lateen status
  lateen status -n shop -l app=reviews
  lateen status -w
  lateen status -o json | jq '.pods[] | {name, mesh, identity}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.format, err = cmds.app.format(formats...); err != nil {
				return err
			}
			o.namespace = cmd.Flags().Changed("namespace")
			ctx, stop := cmd.Context(), func() {}
			if o.watch {
				ctx, stop = cmds.app.untilUnread(ctx)
			}
			defer stop()
			return cmds.status(ctx, o)
		},
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only pods with these labels, such as app=reviews")
	cmd.Flags().BoolVar(&o.pods, "pods", false, "every pod, however many there are")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show the state again whenever it changes, until Ctrl-C")
	cmds.app.namespaceFlag(cmd)
	cmd.Flags().Lookup("namespace").Usage = "only pods and objects of this namespace (default: all)"
	cmd.Flags().Lookup("namespace").DefValue = ""
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// status shows the mesh's state, once or whenever it changes.
func (cmds statusCommands) status(ctx context.Context, o statusOptions) error {
	shown := ""
	for {
		page, err := cmds.statusPage(ctx, o)
		switch {
		case err != nil && o.watch && ctx.Err() != nil:
			return nil // Ctrl-C ends a watch in order
		case err != nil:
			return err
		case !o.watch:
			return cmds.app.printf("%s", page)
		case cmds.app.Out.Terminal && !o.format.Structured():
			if err := cmds.repaint(page); err != nil {
				return err
			}
		case page != shown:
			if shown != "" && !o.format.Structured() {
				page = "\n" + page
			}
			if err := cmds.app.printf("%s", page); err != nil {
				return err
			}
			shown = strings.TrimPrefix(page, "\n")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// statusPage renders the state of the mesh at one moment.
func (cmds statusCommands) statusPage(ctx context.Context, o statusOptions) (string, error) {
	status, err := cmds.app.client().Status(ctx)
	if err != nil {
		return "", err
	}
	choose, err := cmds.chosenPods(ctx, o)
	if err != nil {
		return "", err
	}
	if err := cmds.findAttention(ctx, &status); err != nil {
		return "", err
	}
	if status.Waypoints, err = (waypointCommands{cmds.app}).find(ctx, !o.namespace, ""); err != nil {
		return "", err
	}
	if o.namespace {
		status.Problems = slices.DeleteFunc(status.Problems, func(p api.Problem) bool { return !inNamespace(p.Object, cmds.app.namespace) })
		status.Findings = slices.DeleteFunc(status.Findings, func(f api.Finding) bool {
			return f.Object.Namespace != cmds.app.namespace && f.Object != (api.Key{Kind: "Namespace", Name: cmds.app.namespace})
		})
	}
	cmds.app.addressAll(&status)
	var page bytes.Buffer
	if o.format.Structured() {
		if choose != nil {
			status.Pods = slices.DeleteFunc(status.Pods, func(p api.PodState) bool { return !choose(p) })
		}
		return structuredStatus(&page, o.format, status)
	}
	options := printer.StatusOptions{Wide: o.format == printer.Wide, Pods: o.pods, Choose: choose, Now: cmds.app.Now(), Width: cmds.app.width()}
	err = printer.Status(cmds.app.hints(&page), status, cmds.app.Out, options)
	return page.String(), err
}

func structuredStatus(page *bytes.Buffer, format printer.Format, status api.Status) (string, error) {
	err := printer.Write(page, format, status)
	return page.String(), err
}

// inNamespace says whether a problem's object ("Kind namespace/name", or "Namespace name") is a namespace or of it.
func inNamespace(object, namespace string) bool {
	kind, name, _ := strings.Cut(object, " ")
	return strings.HasPrefix(name, namespace+"/") || kind == "Namespace" && name == namespace || strings.HasPrefix(object, namespace+"/")
}

// chosenPods says which pods the flags choose; nil is all.
func (cmds statusCommands) chosenPods(ctx context.Context, o statusOptions) (func(api.PodState) bool, error) {
	if !o.namespace && o.selector == "" {
		return nil, nil
	}
	labelled := map[string]bool{}
	if o.selector != "" {
		list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: "Pod", Namespace: cmds.app.namespace, AllNamespaces: !o.namespace, Selector: o.selector})
		if err != nil {
			return nil, err
		}
		for _, pod := range list.Items {
			labelled[pod.Key.Namespace+"/"+pod.Key.Name] = true
		}
	}
	return func(p api.PodState) bool {
		return (!o.namespace || p.Namespace == cmds.app.namespace) && (o.selector == "" || labelled[p.Namespace+"/"+p.Name])
	}, nil
}

// findAttention adds to a status the objects of which only a part is in force, or nothing. They are no problem to the control plane, but their
// author should know. An object that was written for the cluster rather than for the mesh is left out where nothing of it is in force: Services,
// and on Kubernetes the Gateways of others. Each object has one problem then.
func (cmds statusCommands) findAttention(ctx context.Context, status *api.Status) error {
	if len(status.Unknown) > 0 {
		return nil // no control plane answers; the cluster's own word is among the problems
	}
	for _, kind := range append(slices.Clone(partial), "Namespace") {
		list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
		if err != nil {
			return err
		}
		if list.Unasked != "" {
			status.Problems = append(status.Problems, api.Problem{Message: "not known: which policies match nobody, select no pod or refuse everybody, since the control plane does not answer: " + list.Unasked})
			break // nor does it about the other kinds
		}
		for _, object := range list.Items {
			state, reason := printer.State(object)
			name := fmt.Sprintf("%s %s", kind, strings.TrimPrefix(object.Key.Namespace+"/"+object.Key.Name, "/")) // as the control plane writes it in problems
			warned := slices.DeleteFunc(slices.Clone(object.Findings), func(f api.Finding) bool { return f.Severity != api.FindingWarning && f.State == "" })
			status.Findings = append(status.Findings, warned...)
			if len(warned) > 0 {
				// The findings say what the condition says, and for which pods.
				status.Problems = slices.DeleteFunc(status.Problems, func(p api.Problem) bool { return p.Object == name && printer.Covers(warned, p.Message) })
				status.Problems = append(status.Problems, api.Problem{Severity: api.SeverityWarning, Object: name, Message: printer.Reasons(warned)})
			}
			foreign := kind == "Service" || kind == "Gateway" && status.Engine == api.Kubernetes && strings.HasPrefix(reason, "NotImplemented")
			told := slices.ContainsFunc(status.Problems, func(p api.Problem) bool { return p.Object == name })
			if message := plain(reason); (state == printer.StatePartial || state == printer.StateIneffective && !foreign && !told) && !printer.Covers(warned, message) {
				status.Problems = append(status.Problems, api.Problem{Object: name, Message: message})
			}
		}
	}
	status.Problems = printer.OnePerObject(status.Problems)
	return nil
}

// plain is a condition's message without the word for programs before it.
func plain(reason string) string {
	if word, message, ok := strings.Cut(reason, ": "); ok && !strings.Contains(word, " ") {
		return message
	}
	return reason
}
