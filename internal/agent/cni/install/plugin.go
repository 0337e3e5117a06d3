package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/cni"
)

const pluginMode = 0o755

// twins are two files that were found to be alike, as they were then. They are long, and read again only when one of them
// is another or was changed.
type twins struct{ one, other unix.Stat_t }

// copyPlugin puts the plugin in place, and says whether that was needed.
func (n Node) copyPlugin() (bool, error) {
	plugin, err := os.Open(n.Plugin)
	if err != nil {
		return false, fmt.Errorf("read the CNI plugin: %w; the agent's image should have it", err)
	}
	defer plugin.Close()
	target := filepath.Join(n.BinDir, cni.Type)
	if same, err := n.isPlugin(plugin, target); err != nil || same {
		return false, err
	}
	if _, err := plugin.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("read the CNI plugin: %w", err)
	}
	// Renamed into place: a runtime that starts it meanwhile has the old one or the new one.
	return true, cni.CopyWhole(target, plugin, pluginMode)
}

// isPlugin says whether the plugin is at target as it should be. Whatever is wrong with what is there, it is replaced.
func (n Node) isPlugin(plugin *os.File, target string) (bool, error) {
	there, err := os.Open(target)
	if err != nil {
		return false, nil
	}
	defer there.Close()
	var now twins
	if err := errors.Join(unix.Fstat(int(plugin.Fd()), &now.one), unix.Fstat(int(there.Fd()), &now.other)); err != nil {
		return false, fmt.Errorf("look at the CNI plugin: %w", err)
	}
	// The access time does not count: reading a file does not change it.
	now.one.Atim, now.other.Atim = unix.Timespec{}, unix.Timespec{}
	if now.other.Mode&0o777 != pluginMode || now.one.Size != now.other.Size {
		return false, nil
	}
	if n.copied != nil && *n.copied == now {
		return true, nil
	}
	same, err := alike(plugin, there)
	if err != nil {
		return false, fmt.Errorf("compare the CNI plugin with what is installed: %w", err)
	}
	if same && n.copied != nil {
		*n.copied = now
	}
	return same, nil
}

// alike compares what two files have from where they are, in pieces.
func alike(one, other io.Reader) (bool, error) {
	var a, b [32 << 10]byte
	for {
		n, err := io.ReadFull(one, a[:])
		m, otherErr := io.ReadFull(other, b[:])
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		for _, err := range []error{err, otherErr} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if n < len(a) {
			return true, nil
		}
	}
}
