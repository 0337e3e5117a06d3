package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/lab/isotope"
)

func (cmds labCommands) labIsotopeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "isotope",
		Short: "turn a topology of Istio's isotope into a drawing or into Kubernetes objects",
		Example: `  lateen lab isotope graph shop.yaml | dot -Tsvg >shop.svg
  lateen lab isotope manifests shop.yaml | lateen apply -f -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.labGraphCommand(), cmds.labManifestsCommand())
	return cmd
}

const topologyArgument = "the topology's file, or - for standard input"

func (cmds labCommands) labGraphCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "graph FILE",
		Short:   "draw a topology in Graphviz's language",
		Long:    "Services are tables with a row for each step of their script; calls that are not always made are dashed, and a circle of calls that no request comes out of is red.",
		Example: `  lateen lab isotope graph shop.yaml | dot -Tsvg >shop.svg`,
		Args:    exactly(1, topologyArgument),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := cmds.topology(args[0])
			if err != nil {
				return err
			}
			return cmds.labWrite(output, t.Graphviz)
		},
	}
	cmd.Flags().StringVar(&output, "output", "-", "file to write; - is standard output")
	return cmd
}

func (cmds labCommands) labManifestsCommand() *cobra.Command {
	o := isotope.DefaultManifestOptions
	var output string
	cmd := &cobra.Command{
		Use:   "manifests FILE",
		Short: "write the Kubernetes objects that act a topology out",
		Long: `Each service becomes a ServiceAccount, a Service and a Deployment whose pods carry their part of the topology in their
environment; numRbacPolicies become AuthorizationPolicies of which the last one admits everybody. On the local engine they run as they are.`,
		Example: `  lateen lab isotope manifests shop.yaml | lateen apply -f -

  # The services of one cluster, one pod each.
  lateen lab isotope manifests shop.yaml --cluster east --replicas 1`,
		Args: exactly(1, topologyArgument),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.Replicas < 0 || o.Replicas > 1000 {
				return usagef("--replicas %d: use 1 to 1000, or 0 for what the topology says", o.Replicas)
			}
			t, err := cmds.topology(args[0])
			if err != nil {
				return err
			}
			return cmds.labWrite(output, func(w io.Writer) error { return t.Manifests(w, o) })
		},
	}
	cmd.Flags().StringVar(&o.Cluster, "cluster", "", "only services of this cluster (left out: all)")
	cmd.Flags().StringVar(&o.Image, "image", o.Image, "image of the containers; the local engine runs the command from this machine instead")
	cmd.Flags().StringSliceVar(&o.Command, "command", o.Command, "what the containers run")
	cmd.Flags().IntVar(&o.Replicas, "replicas", 0, "pods of each service (0: what the topology says)")
	cmd.Flags().StringVar(&output, "output", "-", "file to write; - is standard output")
	return cmd
}

// topology reads a file, or standard input.
func (cmds labCommands) topology(file string) (*isotope.Topology, error) {
	var text []byte
	var err error
	if file == "-" {
		file = "standard input"
		text, err = io.ReadAll(cmds.app.input)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the topology: %w", err)
	}
	t, err := isotope.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// labServiceCommand is what pods run; nobody types it.
func (cmds labCommands) labServiceCommand() *cobra.Command {
	var listen string
	var idle int
	cmd := &cobra.Command{
		Use:    "service",
		Short:  "act out one service of a topology",
		Long:   "The service is the one that " + isotope.NameVariable + " names, of the topology in the file " + isotope.PathVariable + " or in " + isotope.GraphVariable + ".",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if idle < 0 {
				return usagef("--max-idle-connections-per-host %d: use 0 or more", idle)
			}
			t, err := isotope.Load(os.Getenv("CONFIG_PATH"), os.Getenv("SERVICE_GRAPH"))
			if err != nil {
				return err
			}
			h, err := isotope.NewHandler(t, os.Getenv("SERVICE_NAME"), idle, slog.New(slog.NewTextHandler(cmds.app.Stderr, nil)))
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			return h.Serve(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":8080", "address to answer on")
	cmd.Flags().IntVar(&idle, "max-idle-connections-per-host", 32, "connections that are kept to each service that is called")
	return cmd
}
