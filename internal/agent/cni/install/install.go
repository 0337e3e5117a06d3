package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/agent/cni"
)

// Node is where things lie on the node, as the agent sees it.
type Node struct {
	ConfDir string // network configurations; the runtime uses the first by name
	BinDir  string // plugins
	Plugin  string // the plugin's binary as it came with the agent
	Entry   cni.Entry
	// StateFile is Entry.StateFile as the agent sees it.
	StateFile string

	copied *twins // files that were found to be equal; nil to compare each time
}

// ErrNoNetwork says that the node has no network configuration yet.
var ErrNoNetwork = errors.New("the node has no network configuration yet; pods cannot start before its CNI plugin is installed")

const (
	listEnd   = ".conflist"
	singleEnd = ".conf"
	// originalEnd is behind the name of a configuration as it was before us. Runtimes do not read such files.
	originalEnd = ".lateen-original"
)

// Install puts the plugin and its entry in place and says which configuration it is in. It changes only what is not as it
// should be; what somebody else wrote meanwhile it puts right.
func (n Node) Install() (configuration string, changed bool, err error) {
	copied, err := n.copyPlugin()
	if err != nil {
		return "", false, err
	}
	// The plugin takes the mesh for removed if this file is missing.
	if _, err := os.Stat(n.StateFile); errors.Is(err, fs.ErrNotExist) {
		if err := (cni.State{}).Save(n.StateFile); err != nil {
			return "", copied, err
		}
	}
	names, err := n.configurations()
	if err != nil {
		return "", copied, err
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(n.ConfDir, name))
		if err != nil {
			return "", copied, fmt.Errorf("read the network configuration: %w", err)
		}
		list, err := readList(content)
		if err != nil || len(slices.DeleteFunc(slices.Clone(list.plugins), isOurs)) == 0 {
			continue // no network is made with it
		}
		chained, err := n.chain(name, content)
		if err != nil {
			return "", copied, fmt.Errorf("chain %s into %s: %w", cni.Type, filepath.Join(n.ConfDir, name), err)
		}
		removed, err := n.unchainAll(func(other string) bool { return other != name && other != listName(name) })
		return listName(name), copied || chained || removed, err
	}
	return "", copied, ErrNoNetwork
}

// Uninstall takes the entry out of every configuration, and then the plugin and what it knows off the node.
func (n Node) Uninstall() error {
	if _, err := n.unchainAll(func(string) bool { return true }); err != nil {
		return err
	}
	// A pod that is being born may still be called for: without this file the plugin lets it pass.
	err := cni.RemoveState(n.StateFile)
	// The runtime learns of a changed configuration a moment later, and fails if a plugin that is in its copy is gone.
	time.Sleep(reload)
	return errors.Join(err, remove(filepath.Join(n.BinDir, cni.Type)), n.sweep())
}

// reload is how long a container runtime may take to read a changed configuration.
const reload = 2 * time.Second

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was installed: %w", err)
	}
	return nil
}

// sweep removes what an agent that was killed in the middle of writing may have left.
func (n Node) sweep() (err error) {
	for _, dir := range []string{n.ConfDir, n.BinDir} {
		left, _ := filepath.Glob(filepath.Join(dir, "*.lateen-new"))
		for _, path := range left {
			err = errors.Join(err, remove(path))
		}
	}
	return err
}

// configurations are the files that a runtime looks at, in its order.
func (n Node) configurations() ([]string, error) {
	entries, err := os.ReadDir(n.ConfDir)
	if err != nil {
		return nil, fmt.Errorf("list network configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case listEnd, singleEnd, ".json":
			if !e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Chains says whether a plugin of that type is in a configuration that a runtime looks at. One that makes no sense, such as a file that is being
// written, may be about to have it: that is an error, as with one that cannot be read.
func (n Node) Chains(plugin string) (bool, error) {
	names, err := n.configurations()
	if err != nil {
		return false, err
	}
	var unclear error
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(n.ConfDir, name))
		if err != nil {
			unclear = errors.Join(unclear, fmt.Errorf("read the network configuration: %w", err))
			continue
		}
		list, err := readList(content)
		if err != nil {
			unclear = errors.Join(unclear, fmt.Errorf("read the network configuration %s: %w", filepath.Join(n.ConfDir, name), err))
			continue
		}
		if slices.ContainsFunc(list.plugins, func(p json.RawMessage) bool { return typeOf(p) == plugin }) {
			return true, nil
		}
	}
	return false, unclear
}

// listName is the name of the list that a configuration becomes.
func listName(name string) string {
	if ext := filepath.Ext(name); ext != listEnd {
		return strings.TrimSuffix(name, ext) + listEnd
	}
	return name
}

// chain writes the entry into one configuration. What it was before is kept beside it.
func (n Node) chain(name string, content []byte) (bool, error) {
	out, err := Chain(content, n.Entry)
	if err != nil || out == nil {
		return false, err
	}
	path := filepath.Join(n.ConfDir, name)
	if other := filepath.Join(n.ConfDir, listName(name)); other != path {
		if there, err := os.ReadFile(other); err == nil {
			if bare, err := Unchain(there); err != nil || bare == nil {
				return false, fmt.Errorf("%s is there as well and is somebody else's; remove one of the two", other)
			}
		}
	}
	mode := fs.FileMode(0o600)
	if i, err := os.Stat(path); err == nil {
		mode = i.Mode().Perm()
	}
	// A file that already has our entry is not the original.
	if bare, err := Unchain(content); err == nil && bare == nil {
		if err := cni.WriteWhole(path+originalEnd, content, mode); err != nil {
			return false, err
		}
	}
	if err := cni.WriteWhole(filepath.Join(n.ConfDir, listName(name)), out, mode); err != nil {
		return false, err
	}
	if listName(name) != name {
		// Its name comes before the list's.
		return true, remove(path)
	}
	return true, nil
}

// unchainAll takes the entry out of the configurations that which names. One that then says what it said before gets its
// old bytes, and its old name, back.
func (n Node) unchainAll(which func(name string) bool) (changed bool, err error) {
	names, err := n.configurations()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	for _, name := range names {
		if !which(name) {
			continue
		}
		path := filepath.Join(n.ConfDir, name)
		content, err := os.ReadFile(path)
		if err != nil {
			return changed, fmt.Errorf("read the network configuration: %w", err)
		}
		out, err := Unchain(content)
		if err != nil || out == nil {
			continue // not ours
		}
		changed = true
		if err := n.restore(name, out); err != nil {
			return changed, err
		}
	}
	originals, _ := filepath.Glob(filepath.Join(n.ConfDir, "*"+originalEnd))
	for _, o := range originals {
		if which(listName(strings.TrimSuffix(filepath.Base(o), originalEnd))) {
			err = errors.Join(err, remove(o))
		}
	}
	return changed, err
}

func (n Node) restore(name string, bare []byte) error {
	path := filepath.Join(n.ConfDir, name)
	base := strings.TrimSuffix(name, listEnd)
	for _, was := range []string{name, base + singleEnd, base + ".json"} {
		original := filepath.Join(n.ConfDir, was+originalEnd)
		content, err := os.ReadFile(original)
		if err != nil {
			continue
		}
		before := content
		if was != name {
			if before, err = asList(content); err != nil {
				continue
			}
		}
		if !Same(before, bare) {
			continue // somebody changed it since
		}
		if err := os.Rename(original, filepath.Join(n.ConfDir, was)); err != nil {
			return fmt.Errorf("restore the network configuration: %w", err)
		}
		if was != name {
			return remove(path)
		}
		return nil
	}
	for _, was := range []string{base + singleEnd, base + ".json"} {
		// An earlier run may have been killed after it restored the old file and before it removed the new one.
		if content, err := os.ReadFile(filepath.Join(n.ConfDir, was)); err == nil {
			if before, err := asList(content); err == nil && Same(before, bare) {
				return remove(path)
			}
		}
	}
	mode := fs.FileMode(0o600)
	if i, err := os.Stat(path); err == nil {
		mode = i.Mode().Perm()
	}
	return cni.WriteWhole(path, bare, mode)
}
