package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Type is the plugin's name: that of its binary, and of its entry in a network configuration.
const Type = "lateen-cni"

// Versions of the CNI specification that the plugin speaks. A network configuration of any other is never changed.
var Versions = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Entry is the plugin's entry in a network configuration.
type Entry struct {
	Type string `json:"type"`
	// Socket of the agent.
	Socket string `json:"socket"`
	// StateFile and AccessFile are what the agent leaves for when it is away.
	StateFile  string `json:"stateFile"`
	AccessFile string `json:"accessFile"`
	// MustStart are the namespaces whose pods start whatever happens: the cluster's own and the mesh's.
	MustStart []string `json:"mustStart"`
}

// config is what the runtime gives the plugin on its standard input.
type config struct {
	Entry
	network types.PluginConf
	// before is the unparsed result of the plugins before this one.
	before struct {
		Result json.RawMessage `json:"prevResult"`
	}
}

// podArgs are what container runtimes say of a Kubernetes pod in CNI_ARGS.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // the names are the runtimes'
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive
	K8S_POD_UID       types.UnmarshallableString //nolint:revive
}

const (
	// firstWord is how long an agent that lives takes at most to say whether it captures a pod. It may have to ask the
	// API server for that.
	firstWord = 3 * time.Second
	// patience is how long a pod that is to be captured waits for an agent that is away, which may be on its way back.
	// The runtime then tries again.
	patience = 15 * time.Second
	// again is the pause between two attempts to reach an agent.
	again = 200 * time.Millisecond
	// departure is how long the end of a pod's network waits for the end of its connections.
	departure = 5 * time.Second
)

// plugin has the times, for tests.
type plugin struct {
	firstWord, patience, again, departure time.Duration
}

// Main is the plugin's process: it answers the runtime by standard output and exits.
func Main() {
	plugin{firstWord: firstWord, patience: patience, again: again, departure: departure}.main()
}

func (p plugin) main() {
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: p.add, Del: p.del, Check: p.check,
		// Networks of pods outside the mesh do not depend on the agent, so neither does the node's readiness.
		Status: func(*skel.CmdArgs) error { return nil },
		GC:     func(*skel.CmdArgs) error { return nil },
	}, version.PluginSupports(Versions...), "lateen-cni captures pods of the mesh before they start")
}

func parse(stdin []byte) (config, error) {
	var c config
	// The three structures are decoded one after the other, since two of them have a field named type.
	if err := errors.Join(json.Unmarshal(stdin, &c.network), json.Unmarshal(stdin, &c.Entry), json.Unmarshal(stdin, &c.before)); err != nil {
		return c, types.NewError(types.ErrDecodingFailure, "read the network configuration", err.Error())
	}
	if c.Socket == "" || c.StateFile == "" {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "the entry of "+Type+" has no socket or no stateFile", "the agent writes it; restart the agent on this node")
	}
	if err := version.ParsePrevResult(&c.network); err != nil {
		return c, types.NewError(types.ErrDecodingFailure, "read the result of the plugins before "+Type, err.Error())
	}
	return c, nil
}

// request is what the agent is asked; ok is false if the sandbox is no Kubernetes pod's.
func request(op Op, args *skel.CmdArgs, c config) (r Request, ok bool, err error) {
	var a podArgs
	if err := types.LoadArgs(args.Args, &a); err != nil {
		return r, false, types.NewError(types.ErrInvalidEnvironmentVariables, "read CNI_ARGS", err.Error())
	}
	r = Request{
		Op: op, Namespace: string(a.K8S_POD_NAMESPACE), Name: string(a.K8S_POD_NAME), UID: string(a.K8S_POD_UID),
		Sandbox: args.ContainerID, NetNS: args.Netns,
	}
	if c.network.PrevResult != nil {
		result, err := types100.NewResultFromResult(c.network.PrevResult)
		if err != nil {
			return r, false, types.NewError(types.ErrDecodingFailure, "read the result of the plugins before "+Type, err.Error())
		}
		for _, ip := range result.IPs {
			if ip.Address.IP == nil {
				continue // an entry that names none
			}
			r.Addresses = append(r.Addresses, ip.Address.IP.String())
		}
	}
	return r, r.Namespace != "" && r.Name != "", nil
}

func (p plugin) add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	if c.network.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, Type+" has no result of a plugin before it", "it must be the last entry of a list of plugins; the agent puts it there")
	}
	r, pod, err := request(Add, args, c)
	if err != nil {
		return err
	}
	if pod {
		if err := p.capture(context.Background(), c, r); err != nil {
			return err
		}
	}
	// Passed on as it is, with what this program may not know.
	_, err = os.Stdout.Write(append(c.before.Result, '\n'))
	return err
}

// capture returns without an error once the pod may start: it is captured, or it need not be.
func (p plugin) capture(ctx context.Context, c config, r Request) error {
	state, err := ReadState(c.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the mesh has left this node
	}
	damaged := err
	mustStart := slices.Contains(c.MustStart, r.Namespace)
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	for wanted, how := false, ""; ; {
		answer, err := ask(ctx, c.Socket, r, p.firstWord)
		if err == nil {
			switch answer.Verdict {
			case Done, Outside:
				return nil
			case Failed:
				if mustStart {
					return nil
				}
				return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("pod %s/%s is to be in the mesh and cannot be captured", r.Namespace, r.Name), answer.Reason)
			}
			err = errors.New("the agent cannot tell: " + answer.Reason)
		}
		switch {
		case mustStart:
			return nil
		case wanted:
		case answer.Verdict == Working:
			wanted, how = true, "the agent"
		case damaged != nil:
			// It cannot be told whether the pod is in the mesh, not even by the namespace.
			if wanted, err := askAPIServer(ctx, c.AccessFile, r); err == nil && !wanted {
				return nil
			}
			wanted, how = true, damaged.Error()
		default:
			if wanted, how = decideAlone(ctx, c, state, r); !wanted {
				return nil
			}
		}
		select {
		case <-time.After(p.again):
			continue
		case <-ctx.Done():
		}
		return types.NewError(types.ErrTryAgainLater,
			fmt.Sprintf("pod %s/%s is to be in the mesh and the node's agent does not capture it: %v", r.Namespace, r.Name, err),
			fmt.Sprintf("the pod starts as soon as the agent is back; that it is to be in the mesh say %s; look at the pods of DaemonSet lateen-agent on this node; if the mesh has left the cluster, run lateen-agent uninstall-cni here", how))
	}
}

// del gives what is open in the pod the time to end in order, while its network is still there. It never fails: a
// sandbox must be removable without an agent.
func (p plugin) del(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return nil
	}
	r, pod, err := request(Del, args, c)
	if err != nil || !pod {
		return nil
	}
	if _, err := ReadState(c.StateFile); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.departure)
	defer cancel()
	// An error means that there is no agent, so there is nothing to wait for.
	_, _ = ask(ctx, c.Socket, r, p.firstWord)
	return nil
}

// check says whether a pod that is to be captured is. An agent that is away is no reason to call a pod's network bad.
func (p plugin) check(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return err
	}
	r, pod, err := request(Check, args, c)
	if err != nil || !pod {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.firstWord)
	defer cancel()
	if answer, err := ask(ctx, c.Socket, r, p.firstWord); err == nil && answer.Verdict == Failed {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("pod %s/%s is to be in the mesh and is not captured", r.Namespace, r.Name), answer.Reason)
	}
	return nil
}
