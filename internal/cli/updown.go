package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// maxNodes is what the local engine's addresses are laid out for: node i has the pod network 10.244.i.0/24.
const maxNodes = 64

func (cmds lifecycleCommands) upCommand() *cobra.Command {
	options := StartOptions{}
	var proxies, places []string
	families := "ipv4"
	cmd := &cobra.Command{
		Use:   "up",
		Short: "start a mesh of local nodes",
		Example: `  # A mesh with two nodes, ready when the command returns.
  lateen up

  # A second one beside it, with another node proxy on its second node.
  lateen up --name mixed --nodes 3 --node-proxy n2=/usr/local/bin/ztunnel`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmds.app.chooseForUp(); err != nil {
				return err
			}
			options.Mesh = cmds.app.mesh
			if err := completeOptions(&options, proxies, families, places); err != nil {
				return err
			}
			return cmds.up(cmd.Context(), options)
		},
	}
	cmd.Flags().IntVar(&options.Nodes, "nodes", 2, "number of nodes")
	cmd.Flags().IntVar(&options.Workers, "workers", 0, "worker threads of each node proxy (0: its own default)")
	cmd.Flags().StringArrayVar(&proxies, "node-proxy", nil, "NODE=PATH: run this executable as the node proxy of a node (repeatable)")
	cmd.Flags().DurationVar(&options.CertTTL, "cert-ttl", 0, "how long workload certificates live, 2s to 2160h; they are renewed at half of it (default: 24h)")
	cmd.Flags().StringVar(&options.CADir, "ca-dir", "", "directory of a plugged-in CA: ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem; changes are followed")
	cmd.Flags().StringSliceVar(&options.TrustDomainAliases, "trust-domain-aliases", nil, "further names of the trust domain cluster.local, for peers and in policies")
	cmd.Flags().StringVar(&families, "ip-families", families, "addresses of nodes, pods and services: ipv4, ipv6 or dual")
	cmd.Flags().StringArrayVar(&options.ProxyEnv, "proxy-env", nil, "NAME=VALUE: an environment variable of every node proxy, such as LATEEN_IDLE_TIMEOUT=1h (repeatable)")
	cmd.Flags().DurationVar(&options.Latency, "latency", 0, "added to every round trip between nodes, in user space, up to "+maxLatency.String()+"; half of it to those between a node and the control plane")
	cmd.Flags().StringArrayVar(&places, "node", nil, "NODE=REGION[/ZONE[/SUBZONE]]: where a node is, for locality (repeatable)")
	return cmd
}

// maxLatency is the longest time that the local engine adds to a round trip between nodes.
const maxLatency = 2 * time.Second

// The control plane takes lives of certificates between these.
const minCertTTL, maxCertTTL = 2 * time.Second, 90 * 24 * time.Hour

// trustDomain is what SPIFFE takes as the name of a trust domain.
var trustDomain = regexp.MustCompile(`^[a-z0-9._-]{1,255}$`)

// meshName keeps names usable as a directory and short enough for a socket's path.
var meshName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

func completeOptions(o *StartOptions, proxies []string, families string, places []string) error {
	if !meshName.MatchString(o.Mesh) {
		return usagef("--name %q: use up to 32 lower-case letters, digits and dashes", o.Mesh)
	}
	if prefix, runs, _ := labMesh(o.Mesh); prefix != "" {
		return usagef("--name %q: names that begin with %s belong to %s; use another", o.Mesh, prefix, runs)
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return usagef("--nodes %d: use a number from 1 to %d", o.Nodes, maxNodes)
	}
	if o.CertTTL != 0 && (o.CertTTL < minCertTTL || o.CertTTL > maxCertTTL) {
		return usagef("--cert-ttl %s: use %s to %s", o.CertTTL, minCertTTL, maxCertTTL)
	}
	if o.Latency < 0 || o.Latency > maxLatency {
		return usagef("--latency %s: use 0s to %s", o.Latency, maxLatency)
	}
	if o.CADir != "" {
		absolute, err := filepath.Abs(o.CADir)
		if err != nil {
			return fmt.Errorf("--ca-dir %q: %w", o.CADir, err)
		}
		o.CADir = absolute
	}
	for _, alias := range o.TrustDomainAliases {
		if !trustDomain.MatchString(alias) {
			return usagef("--trust-domain-aliases %q: write names of trust domains, such as old.example", alias)
		}
	}
	if o.Workers < 0 {
		return usagef("--workers %d: use 0 or more", o.Workers)
	}
	switch families {
	case "ipv4":
		o.Families = []string{"IPv4"}
	case "ipv6":
		o.Families = []string{"IPv6"}
	case "dual":
		o.Families = []string{"IPv4", "IPv6"}
	default:
		return usagef("--ip-families %q: use ipv4, ipv6 or dual", families)
	}
	if err := checkVariables(o.ProxyEnv, len(proxies) > 0); err != nil {
		return err
	}
	o.Labels = map[string]map[string]string{}
	for _, entry := range places {
		node, place, ok := strings.Cut(entry, "=")
		parts := strings.Split(place, "/")
		if !ok || node == "" || len(parts) > len(localityLabels) || !allMatch(labelValue, parts) {
			return usagef("--node %q: write NODE=REGION/ZONE/SUBZONE, such as n1=eu/eu-1; zone and subzone may be left out", entry)
		}
		if !hasNode(node, o.Nodes) {
			return usagef("--node %q: there is no node %s; the nodes are n1 to n%d", entry, node, o.Nodes)
		}
		o.Labels[node] = map[string]string{}
		for i, part := range parts {
			o.Labels[node][localityLabels[i]] = part
		}
	}
	o.NodeProxy = map[string]string{}
	for _, entry := range proxies {
		node, path, ok := strings.Cut(entry, "=")
		if !ok || node == "" || path == "" {
			return usagef("--node-proxy %q: write NODE=PATH, such as n2=/usr/local/bin/ztunnel", entry)
		}
		if !hasNode(node, o.Nodes) {
			return usagef("--node-proxy %q: there is no node %s; the nodes are n1 to n%d", entry, node, o.Nodes)
		}
		absolute, err := filepath.Abs(path)
		if err != nil {
			return fmt.Errorf("--node-proxy %q: %w", entry, err)
		}
		o.NodeProxy[node] = absolute
	}
	return nil
}

// localityLabels are the labels of a Node that say where it is, from the widest to the narrowest.
var localityLabels = []string{wellknown.Region, wellknown.Zone, wellknown.Subzone}

// checkVariables reads variables of node proxies, each NAME=VALUE. Others says that a node has a program of its user, which may read
// variables that this build's proxy does not.
func checkVariables(entries []string, others bool) error {
	for _, entry := range entries {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || !variableName.MatchString(name) {
			return usagef("--proxy-env %q: write NAME=VALUE, such as LATEEN_IDLE_TIMEOUT=1h", entry)
		}
		if err := checkVariableName(name); err != nil && !others {
			return err
		}
	}
	return nil
}

// variableName is the name of an environment variable, as shells take it.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// labelValue is what Kubernetes takes as the value of a label, and not empty.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

func allMatch(r *regexp.Regexp, texts []string) bool {
	for _, t := range texts {
		if !r.MatchString(t) {
			return false
		}
	}
	return true
}

func hasNode(name string, nodes int) bool {
	for i := 1; i <= nodes; i++ {
		if name == fmt.Sprintf("n%d", i) {
			return true
		}
	}
	return false
}

func (cmds lifecycleCommands) up(ctx context.Context, options StartOptions) error {
	progress := cmds.app.progress()
	show := events(progress)
	if err := cmds.app.Engine.Start(ctx, options, show); err != nil {
		progress.Abandon()
		return err
	}
	progress.Abandon()
	if err := cmds.app.printf("mesh %s is up with %d %s\n", options.Mesh, options.Nodes, noun("Node", options.Nodes)); err != nil {
		return err
	}
	cmds.app.next("lateen apply"+cmds.app.meshFlag()+" -f samples/bookinfo/bookinfo.yaml", "lateen status"+cmds.app.meshFlag())
	return nil
}

// events shows an engine's progress. Of a failure it shows the activity that failed and the log lines about it; what
// went wrong is the error that the command ends with.
func events(progress *term.Progress) func(api.Event) {
	return func(e api.Event) {
		switch e.State {
		case api.EventStarted:
			progress.Start(e.Message)
		case api.EventGoesOn:
			progress.Update(e.Message)
		case api.EventDone:
			progress.Done(e.Message)
		case api.EventFailed:
			progress.Fail("")
			for _, line := range e.Log {
				progress.Note("    | " + line)
			}
		}
	}
}

func (cmds lifecycleCommands) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "end a mesh and everything in it",
		Example: `  lateen down

  # Another mesh than the default one.
  lateen down --name mixed`,
		Long: "Without a name it ends the only mesh of this machine, as `lateen list` shows it.\nThe mesh of a lab run is ended by its name alone.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmds.down(cmd.Context()) },
	}
}

func (cmds lifecycleCommands) down(ctx context.Context) error {
	if err := cmds.app.chooseForDown(); err != nil {
		return err
	}
	progress := cmds.app.progress()
	err := cmds.app.Engine.Stop(ctx, cmds.app.mesh, events(progress))
	progress.Abandon()
	if errors.Is(err, api.ErrNotRunning) {
		if err := cmds.app.printf("mesh %s is not running\n", cmds.app.mesh); err != nil {
			return err
		}
		// Taking down what is down already is what the user wanted, unless the name is mistyped.
		if running := cmds.app.running(); len(running) > 0 {
			cmds.app.warn("running: %s", someMeshes(running))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if err := cmds.app.printf("mesh %s is down; nothing of it is left\n", cmds.app.mesh); err != nil {
		return err
	}
	cmds.app.next("lateen up" + cmds.app.meshFlag())
	return nil
}
