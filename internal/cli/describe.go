package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func (cmds readCommands) describeCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.JSON, printer.YAML}
	var selector string
	cmd := &cobra.Command{
		Use:   "describe KIND [NAME...]",
		Short: "show an object with what belongs to it: pods, endpoints, policies, state and reason",
		Example: `  lateen describe pod details-v1-6c8f
  lateen describe deploy/reviews-v1
  lateen describe authorizationpolicy deny-client -o json
  lateen describe pods -l app=reviews`,
		Args: atLeast(1, "KIND, such as pod, service, deployment or authorizationpolicy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			requests, err := getRequests(args, cmds.app.namespace, getOptions{selector: selector})
			if err != nil {
				return err
			}
			return cmds.describe(cmd.Context(), requests, args[0], format)
		},
		ValidArgsFunction: cmds.app.completeKindAndName,
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector, such as app=reviews, in place of names")
	cmds.app.namespaceFlag(cmd)
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

func (cmds readCommands) describe(ctx context.Context, requests []api.GetRequest, word string, format printer.Format) error {
	look := &surroundings{ctx: ctx, client: cmds.app.client(), lists: map[string][]api.Object{}}
	objects, err := list(ctx, look.client, requests, false)
	if err != nil {
		return err
	}
	if len(objects) == 0 && !format.Structured() {
		cmds.app.warn("no %s found in namespace %s", word, cmds.app.namespace)
		return nil
	}
	descriptions := []printer.Description{}
	for _, object := range objects {
		d, err := look.describe(object)
		if err != nil {
			return err
		}
		descriptions = append(descriptions, d)
	}
	switch {
	case format.Structured() && len(requests) == 1 && requests[0].Name != "":
		return printer.Write(cmds.app.Stdout, format, descriptions[0])
	case format.Structured():
		return printer.Write(cmds.app.Stdout, format, map[string]any{"items": descriptions})
	}
	width := cmds.app.width()
	for i, d := range descriptions {
		if i > 0 {
			if err := cmds.app.printf("\n\n"); err != nil {
				return err
			}
		}
		if err := printer.Describe(cmds.app.Stdout, d, cmds.app.Now(), width); err != nil {
			return err
		}
	}
	return nil
}

// surroundings are the objects beside the described one. Each list is asked for once.
type surroundings struct {
	ctx    context.Context
	client *api.Client
	lists  map[string][]api.Object
	seen   *api.Status
	root   string // the mesh's root namespace; empty until it is needed
}

// rootNamespace is the mesh's root namespace.
func (s *surroundings) rootNamespace() string {
	if s.root == "" {
		s.root = rootNamespace(s.ctx, s.client)
	}
	return s.root
}

// all lists the objects of a kind in every namespace.
func (s *surroundings) all(kind string) ([]api.Object, error) {
	if found, asked := s.lists[kind]; asked {
		return found, nil
	}
	list, err := s.client.Get(s.ctx, api.GetRequest{Kind: kind, AllNamespaces: true})
	if isNotFound(err) {
		err = nil // a cluster that does not have the kind has no objects of it
	}
	if err != nil {
		return nil, err
	}
	s.lists[kind] = list.Items
	return list.Items, nil
}

// in lists the objects of a kind in a namespace.
func (s *surroundings) in(kind, namespace string) (found []api.Object, err error) {
	all, err := s.all(kind)
	for _, o := range all {
		if o.Key.Namespace == namespace {
			found = append(found, o)
		}
	}
	return found, err
}

// status is the state of the mesh.
func (s *surroundings) status() (*api.Status, error) {
	if s.seen == nil {
		status, err := s.client.Status(s.ctx)
		if err != nil {
			return nil, err
		}
		s.seen = &status
	}
	return s.seen, nil
}

// describe says what belongs to an object.
func (s *surroundings) describe(object api.Object) (printer.Description, error) {
	var head struct {
		Metadata struct {
			UID         string            `json:"uid"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object.Raw, &head); err != nil {
		return printer.Description{}, fmt.Errorf("read %s: %w", object.Key, err)
	}
	d := printer.Description{
		Kind: object.Key.Kind, APIVersion: object.APIVersion, Namespace: object.Key.Namespace, Name: object.Key.Name, Created: object.Created,
		UID: head.Metadata.UID, Labels: head.Metadata.Labels, Annotations: head.Metadata.Annotations, Conditions: object.Conditions, Findings: object.Findings,
	}
	for _, p := range object.Problems {
		d.Problems = append(d.Problems, remarkOf(p))
	}
	if object.Key.Kind == "Secret" {
		for name := range d.Annotations {
			d.Annotations[name] = "***" // kubectl apply leaves the whole manifest in one, with the values
		}
	}
	var err error
	inForce := true
	switch object.Key.Kind {
	case "Pod":
		d.Pod, err = s.pod(object)
	case "Deployment":
		d.Deployment, err = s.deployment(object)
	case "Service":
		d.Service, err = s.service(object)
	case "Namespace":
		d.Holds, err = s.namespace(object)
	case "Node":
		d.Node, err = s.node(object)
	case "AuthorizationPolicy", "PeerAuthentication":
		d.Policy, err = s.policy(object)
		inForce = err != nil || !d.Policy.DryRun
	default:
		d.Fields, err = fieldsOf(object)
	}
	if err != nil {
		return d, fmt.Errorf("describe %s: %w", object.Key, err)
	}
	if len(object.Conditions)+len(object.Problems)+len(object.Findings) > 0 || object.Ignored != "" {
		d.State, d.Reason = printer.Effect(object)
		if !inForce && d.State == printer.StateLive {
			d.State, d.Reason = printer.StateDryRun, "it reports and decides nothing"
		}
	}
	return d, nil
}

// remarkOf is a problem without the object that it stands below.
func remarkOf(p api.Problem) string {
	p.Object, p.File, p.Line = "", "", 0
	return p.String()
}

// fieldsOf are the fields of an object that has no description of its own: all but those that every object has.
func fieldsOf(object api.Object) (map[string]any, error) {
	var fields map[string]any
	if err := json.Unmarshal(object.Raw, &fields); err != nil {
		return nil, err
	}
	if object.Key.Kind == "Secret" {
		hideSecrets(fields, nil)
	}
	for _, common := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(fields, common)
	}
	if len(fields) == 0 {
		return nil, nil
	}
	return fields, nil
}

// labelsIn are the labels of an object.
func labelsIn(object api.Object) map[string]string {
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object.Raw, &head) != nil {
		return nil // what the engine sends can be read; an object that cannot is found by no selector
	}
	return head.Metadata.Labels
}

// matches says whether labels have all that a selector names. An empty selector matches everything.
func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if had, ok := labels[key]; !ok || had != value {
			return false
		}
	}
	return true
}

// byName orders objects that are listed in a description.
func byName[T any](list []T, name func(T) string) []T {
	slices.SortStableFunc(list, func(a, b T) int { return strings.Compare(name(a), name(b)) })
	return list
}
