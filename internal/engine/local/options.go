// Package local is the engine that makes a mesh out of network namespaces and processes on one Linux machine: it starts and
// ends the mesh, runs the pods that the user's objects ask for, and answers the API of package api. It decides nothing about
// identities, policies or traffic: the control plane, the agents and the proxies that it starts do.
package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/local/delay"
	"lateen.dev/lateen/internal/engine/local/fabric"
)

// Options are what a user chooses about a mesh.
type Options struct {
	Mesh      string                       `json:"mesh"`      // its name
	Nodes     int                          `json:"nodes"`     // 1..fabric.MaxNodes
	Workers   int                          `json:"workers"`   // worker threads of each node proxy; 0 leaves it to the proxy
	NodeProxy map[string]string            `json:"nodeProxy"` // node -> executable to run instead of Lateen's own node proxy
	Families  []string                     `json:"families"`  // IP families, as Kubernetes writes them, the first one first; IPv4 if empty
	Labels    map[string]map[string]string `json:"labels"`    // node -> labels that its Node object gets besides the engine's own
	ProxyEnv  []string                     `json:"proxyEnv"`  // NAME=VALUE: environment of every node proxy besides the engine's own, which it overrides
	CA        CAOptions                    `json:"ca"`        // where certificates come from, and how long they live
	Version   string                       `json:"version"`   // of the program, which the engine then answers with
	Latency   time.Duration                `json:"latency"`   // added to a round trip between two nodes, up to MaxLatency
	BinDir    string                       `json:"binDir"`    // directory of the mesh's executables; that of this executable if empty
	Attached  bool                         `json:"attached"`  // the mesh ends with the process that starts it, and leaves no directory
}

// A round trip between two nodes crosses the link of each of them twice.
const linksOfRoundTrip = 4

// MaxLatency is the longest time that can be added to a round trip between nodes.
const MaxLatency = linksOfRoundTrip * delay.Max

// The executables that a mesh is made of, in BinDir.
const (
	controlBinary = "lateen-control"
	agentBinary   = "lateen-agent"
	proxyBinary   = "lateen-proxy"
)

var meshName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// complete checks the options and fills in what was left open.
func (o *Options) complete() error {
	if !meshName.MatchString(o.Mesh) {
		return fmt.Errorf("mesh name %q is not usable: take up to 32 lower-case letters, digits and dashes", o.Mesh)
	}
	if o.Nodes < 1 || o.Nodes > fabric.MaxNodes {
		return fmt.Errorf("cannot make %d nodes: choose 1 to %d", o.Nodes, fabric.MaxNodes)
	}
	if o.Workers < 0 {
		return fmt.Errorf("cannot run %d workers: choose 0 or more", o.Workers)
	}
	if o.Latency < 0 || o.Latency > MaxLatency {
		return fmt.Errorf("cannot add a latency of %s: choose 0s to %s", o.Latency, MaxLatency)
	}
	if _, err := familiesOf(o.Families); err != nil {
		return err
	}
	for node := range o.Labels {
		if !o.hasNode(node) {
			return fmt.Errorf("there is no node %q to label: nodes are n1 to n%d", node, o.Nodes)
		}
	}
	if o.BinDir == "" {
		dir, err := executableDir()
		if err != nil {
			return err
		}
		o.BinDir = dir
	}
	if err := o.CA.complete(); err != nil {
		return err
	}
	binaries := []string{filepath.Join(o.BinDir, controlBinary), filepath.Join(o.BinDir, agentBinary)}
	ours := false
	for i := 1; i <= o.Nodes; i++ {
		if path, ok := o.NodeProxy[nodeName(i)]; ok {
			if err := executable(path); err != nil {
				return fmt.Errorf("node proxy of %s: %w", nodeName(i), err)
			}
		} else {
			ours = true
		}
	}
	for node := range o.NodeProxy {
		if !o.hasNode(node) {
			return fmt.Errorf("there is no node %q to give a proxy to: nodes are n1 to n%d", node, o.Nodes)
		}
	}
	if ours {
		binaries = append(binaries, filepath.Join(o.BinDir, proxyBinary))
	}
	var missing []string
	for _, b := range binaries {
		if err := executable(b); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, filepath.Base(b))
		} else if err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: not in %s; run `make build`, which puts all programs into one directory", strings.Join(missing, ", "), o.BinDir)
	}
	return nil
}

// waypointProxy is the program that waypoints run, as a pod sees it: this build's, or the other build of Lateen's that all nodes run.
func (o Options) waypointProxy() string {
	own := podBinDir + "/" + proxyBinary
	other := o.NodeProxy[nodeName(1)]
	for i := 1; i <= o.Nodes; i++ {
		if path := o.NodeProxy[nodeName(i)]; path != other || filepath.Base(path) != proxyBinary {
			return own
		}
	}
	return cmp.Or(other, own)
}

// familiesOf finds the address plans by their names.
func familiesOf(names []string) ([]*fabric.Family, error) {
	if len(names) == 0 {
		return []*fabric.Family{fabric.IPv4}, nil
	}
	var families []*fabric.Family
	for _, name := range names {
		for _, f := range []*fabric.Family{fabric.IPv4, fabric.IPv6} {
			if f.Name == name && !slices.Contains(families, f) {
				families = append(families, f)
			}
		}
	}
	if len(families) != len(names) {
		return nil, fmt.Errorf("IP families %s: choose IPv4, IPv6 or both, each once", strings.Join(names, ","))
	}
	return families, nil
}

func (o *Options) hasNode(name string) bool {
	for i := 1; i <= o.Nodes; i++ {
		if nodeName(i) == name {
			return true
		}
	}
	return false
}

func executableDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the directory of the mesh's programs: %w", err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", fmt.Errorf("find the directory of the mesh's programs: %w", err)
	}
	return filepath.Dir(exe), nil
}

func executable(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}

func nodeName(index int) string { return fmt.Sprintf("n%d", index) }
