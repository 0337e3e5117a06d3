package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/demo"
	"lateen.dev/lateen/internal/engine/api"
)

// demoMesh is the demonstration's own mesh, so that it never touches the one a user works with.
const demoMesh = "demo"

func (cmds lifecycleCommands) demoCommand() *cobra.Command {
	o := demo.Options{Pairs: 3, Block: 10 * time.Second, Warmup: 2 * time.Second, Deadline: time.Minute}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "see the mesh at work and what it costs, measured; cleans up after itself",
		Example: `  lateen demo

  # Keep the mesh for a look around, and all numbers in a file.
  lateen demo --keep --json results.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			o.Name = demoMesh
			if cmd.Flags().Changed("name") {
				o.Name = cmds.app.mesh
			}
			if o.Samples == "" {
				dir, err := samplesDir()
				if err != nil {
					return err
				}
				o.Samples = dir
			}
			return cmds.demo(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Samples, "samples", "", "directory with bookinfo and echo (default: samples beside the program's directory)")
	cmd.Flags().IntVar(&o.Pairs, "rounds", o.Pairs, "rounds, each without and with the mesh")
	cmd.Flags().DurationVar(&o.Block, "block", o.Block, "time measured per round, side and service")
	cmd.Flags().DurationVar(&o.Warmup, "warmup", o.Warmup, "time before that which does not count")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the mesh running at the end")
	cmd.Flags().StringVar(&o.JSON, "json", "", "write all results to this file")
	return cmd
}

// samplesDir is the samples directory of the tree that the program was built in: bin/lateen lies in it.
func samplesDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the running executable: %w", err)
	}
	dir := filepath.Join(filepath.Dir(filepath.Dir(exe)), "samples")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("no samples in %s; name their directory with --samples", dir)
	}
	return dir, nil
}

func (cmds lifecycleCommands) demo(ctx context.Context, o demo.Options) error {
	options := StartOptions{Mesh: o.Name, Nodes: 2, NodeProxy: map[string]string{}, Attached: !o.Keep}
	err := demo.Run(ctx, demo.Stage{
		Mesh: cmds.app.Connect(o.Name),
		Up: func(ctx context.Context, progress func(api.Event)) error {
			return cmds.app.Engine.Start(ctx, options, progress)
		},
		Down: func(ctx context.Context, progress func(api.Event)) error {
			return cmds.app.Engine.Stop(ctx, o.Name, progress)
		},
		System: cmds.app.System, Cores: runtime.NumCPU(), Busy: demo.MachineBusy,
		Out: cmds.app.Stdout, Style: cmds.app.Out, Progress: cmds.app.progress(),
	}, o)
	if errors.Is(err, demo.ErrUnfit) {
		return exitStatus(ExitFindings)
	}
	return err
}
