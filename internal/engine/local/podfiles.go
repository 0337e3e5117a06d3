package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/podinit"
)

// podNetNS is the network namespace of a pod.
func (d runDir) podNetNS(id *podIdentity) string {
	if id.onNodesNetwork() {
		return id.node.NetNS
	}
	return d.netns(id.uid)
}

// writeFiles writes the pod's own versions of files of the machine into a directory.
func (id *podIdentity) writeFiles(dir string, resolver fmt.Stringer) error {
	if name := id.hostname(); len(name) > maxFullHostname {
		return fmt.Errorf("the kernel takes host names of up to %d bytes, and setHostnameAsFQDN asks for %q; leave it out or shorten the names", maxFullHostname, name)
	}
	for name, text := range map[string]string{"hosts": id.hosts(), "hostname": id.hostname() + "\n", "resolv.conf": id.resolvConf(resolver), "nsswitch.conf": nsswitch()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// nsswitch is the machine's own configuration of name lookups, but with names of hosts from files and DNS only: a resolver
// daemon of the machine would not know the mesh's names.
func nsswitch() string {
	const hosts = "hosts: files dns\n"
	b, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil {
		return hosts
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(strings.TrimSpace(line), "hosts:") {
			out.WriteString(line)
		}
	}
	if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		out.WriteString("\n")
	}
	return out.String() + hosts
}

// view is what the pod sees of the machine: the files in dir, the programs in bin, and, if it asks for its certificate itself, the root
// certificates in roots.
func (id *podIdentity) view(dir, bin, roots string) podinit.Setup {
	s := podinit.Setup{
		Hostname: id.hostname(),
		Files:    map[string]string{},
		Dirs:     map[string]string{podBinDir: bin},
		Hidden:   api.RunRoot,
		Scratch:  []string{"/tmp", "/var/tmp", "/dev/shm", "/run/nscd"}, ScratchMax: scratchSize,
	}
	if id.ownName {
		s.Dirs[podTokenDir], s.Dirs[podRootsDir] = filepath.Join(dir, "token"), roots
	}
	if id.dir != "" {
		s.Dirs[podManifestDir] = id.dir
	}
	for _, name := range []string{"hosts", "hostname", "resolv.conf", "nsswitch.conf"} {
		// A file that the machine lacks cannot be covered, and nothing is added to the machine.
		if _, err := os.Stat("/etc/" + name); err == nil {
			s.Files["/etc/"+name] = filepath.Join(dir, name)
		}
	}
	return s
}

// Pods see these directories of the machine below api.RunRoot, and nothing else there.
const (
	podRunDir      = api.RunRoot
	podBinDir      = podRunDir + "/bin"
	podManifestDir = podRunDir + "/manifest"
)

// maxHostname is the longest label of a name, and maxFullHostname the longest host name that the kernel takes, in bytes.
const (
	maxHostname     = 63
	maxFullHostname = 64
)
