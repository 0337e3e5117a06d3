package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// listPatience bounds how long `lateen list` waits for the answers of one mesh.
const listPatience = 5 * time.Second

// maxAsked bounds how many meshes are asked at once.
const maxAsked = 8

func (cmds statusCommands) listCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.Name, printer.JSON, printer.YAML}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "list the meshes of this machine",
		Example: `  lateen list

  # The names alone, one a line.
  lateen list -o name`,
		Long: `Lists every mesh of this machine, also those that a lab run or the demo started, and the files
that a killed mesh left behind.

A command is about the mesh that --name names, else the one that LATEEN_NAME names, else the only
one that runs. If several run and none is named, the command fails and names them. The mesh of a
lab run (lab-...) or of a scorecard (card-...) is never taken without its name, not even as the only
one. "lateen up" starts the mesh "default" if no name is given.

STATE is one of
  running  the engine answers
  silent   the engine's process runs and does not answer: the mesh is starting or ending
  stopped  only files are left; "lateen down --name NAME" removes them
  unknown  root alone may ask the engine`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			return cmds.list(cmd.Context(), format)
		},
	}
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

func (cmds statusCommands) list(ctx context.Context, format printer.Format) error {
	meshes := cmds.meshes(ctx)
	if format.Structured() {
		return printer.Write(cmds.app.Stdout, format, meshes)
	}
	if format == printer.Name {
		for _, m := range meshes {
			if err := cmds.app.printf("%s\n", m.Name); err != nil {
				return err
			}
		}
		return nil
	}
	if len(meshes) == 0 {
		cmds.app.warn("no mesh is on this machine")
		cmds.app.next("lateen up")
		return nil
	}
	columns := cmds.app.width()
	if err := printer.Meshes(cmds.app.Stdout, meshes, columns, cmds.app.Now()); err != nil {
		return err
	}
	for _, m := range meshes {
		if m.Reason != "" {
			cmds.app.warn("mesh %s: %s", m.Name, m.Reason)
		}
		if m.Fix != "" {
			cmds.app.next(m.Fix)
		}
	}
	return nil
}

// meshes asks every mesh of this machine how it is, several at once. They are in the order of their names.
func (cmds statusCommands) meshes(ctx context.Context) []printer.Mesh {
	names := slices.Sorted(slices.Values(cmds.app.Meshes()))
	meshes := make([]printer.Mesh, len(names))
	var all sync.WaitGroup
	turn := make(chan struct{}, maxAsked)
	for i, name := range names {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			meshes[i] = cmds.lookAt(ctx, name)
		})
	}
	all.Wait()
	return meshes
}

func (cmds statusCommands) lookAt(ctx context.Context, name string) printer.Mesh {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	m := printer.Mesh{Name: name, State: printer.MeshRunning}
	client := cmds.app.Connect(name)
	version, err := client.Version(ctx)
	var refusal *api.Error
	switch {
	case errors.Is(err, api.ErrNotRunning) && cmds.app.Engine != nil && cmds.app.Engine.Alive(name):
		m.State, m.Reason = printer.MeshSilent, "the engine runs and does not answer: the mesh is starting or ending"
		return m
	case errors.Is(err, api.ErrNotRunning):
		m.State, m.Reason = printer.MeshStopped, "it does not run, and files of it are left"
		m.Fix = "lateen down --name " + name
		return m
	case errors.As(err, &refusal):
		m.State, m.Reason, m.Fix = printer.MeshUnknown, refusal.Message, refusal.Fix
		return m
	case err != nil:
		m.State, m.Reason = printer.MeshSilent, fmt.Sprintf("the engine does not answer: %v", err)
		return m
	}
	m.Nodes, m.Version, m.Since = len(version.Nodes), version.Version, version.Started
	status, err := client.Status(ctx)
	if err != nil {
		m.Reason = fmt.Sprintf("its pods are not known: %v", err)
		return m
	}
	pods, enrolled := 0, 0
	for _, pod := range status.Pods {
		if pod.HostNetwork {
			continue // it shares its node's network and can never be enrolled, as in status
		}
		pods++
		if pod.Redirection {
			enrolled++
		}
	}
	m.Pods, m.Enrolled = &pods, &enrolled
	return m
}
