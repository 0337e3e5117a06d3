package local

import (
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/podspec"
)

// podCommands makes the commands of containers. Its fields never change; the state's lock guards what it reads of pods.
type podCommands struct {
	state *state
	path  string // PATH of the pods, after the mesh's own directory
}

func newPodCommands(s *state, path string) *podCommands { return &podCommands{state: s, path: path} }

// of returns the command of a container of a pod.
func (m *podCommands) of(p *pod, c *container) (podinit.Command, error) {
	m.state.mu.Lock()
	facts := podspec.Facts{
		Name: p.id.name, Namespace: p.id.namespace, UID: p.id.uid, Labels: p.labels, Annotations: p.annotations,
		PodIP: p.id.ip.String(), PodIPs: texts(p.id.ips), HostIP: p.id.node.IP().String(), HostIPs: texts(p.id.node.IPs()), NodeName: p.id.node.name, ServiceAccount: p.id.serviceAccount(),
		Base: []string{"PATH=" + podBinDir + ":" + m.path, "HOME=/tmp", "HOSTNAME=" + p.id.hostname()},
	}
	m.state.mu.Unlock()
	if p.id.dir != "" {
		facts.Base = append(facts.Base, "LATEEN_MANIFEST_DIR="+podManifestDir)
	}
	cmd, err := podspec.CommandOf(c.spec, facts)
	if err != nil {
		return podinit.Command{}, err
	}
	return podinit.Command{Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, UID: p.id.unixUID}, nil
}
