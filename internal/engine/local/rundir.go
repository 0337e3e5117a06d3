package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// runDir names what is where in a mesh's run directory.
type runDir string

func (d runDir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}
func (d runDir) socket() string                 { return d.path("engine.sock") }
func (d runDir) record() string                 { return d.path("engine.json") }
func (d runDir) engineLog() string              { return d.path("engine.log") }
func (d runDir) controlLog() string             { return d.path("control.log") }
func (d runDir) roots() string                  { return d.path("pki") }
func (d runDir) rootCert() string               { return filepath.Join(d.roots(), "root-cert.pem") }
func (d runDir) pluggedCA() string              { return d.path("cacerts") }
func (d runDir) resolvers() string              { return d.path("resolv.conf") }
func (d runDir) tokenKey() string               { return d.path("token-key.pem") }
func (d runDir) bin() string                    { return d.path("bin") }
func (d runDir) userObjects() string            { return d.path("objects", "user") }
func (d runDir) engineObjects() string          { return d.path("objects", "engine") }
func (d runDir) node(name string) string        { return d.path("nodes", name) }
func (d runDir) agentSocket(node string) string { return d.path("nodes", node, "agent.sock") }
func (d runDir) token(node string) string       { return d.path("nodes", node, "token") }
func (d runDir) netns(name string) string       { return d.path("netns", name) }
func (d runDir) podToken(id *podIdentity) string {
	return filepath.Join(d.pod(id.namespace, id.name), "token")
}
func (d runDir) pod(ns, name string) string { return d.path("pods", fileName(ns+"_"+name)) }

// record names the engine's process for good.
type record struct {
	PID       int       `json:"pid"`       // on the host
	StartTime uint64    `json:"startTime"` // clock ticks since boot
	Started   time.Time `json:"started"`
	Mesh      string    `json:"mesh"`
	Nodes     int       `json:"nodes"`
}

func readRecord(d runDir) (record, error) {
	var r record
	b, err := os.ReadFile(d.record())
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil || r.PID <= 1 {
		return r, fmt.Errorf("%s does not name the engine's process", d.record())
	}
	return r, nil
}

// alive says whether the recorded process still runs, and is not another one that got its pid.
func (r record) alive() bool {
	st, err := proc.ReadStat("/proc", r.PID)
	return err == nil && st.StartTime == r.StartTime && st.State != 'Z'
}

// lock takes the run directory for an engine, or says that one has it: errBusy. The lock ends with the last process that
// has the file open, however that ends, so that it is what tells a running mesh from the remains of one.
func (d runDir) lock() (*os.File, error) {
	for {
		// The parent is made as well, since it is removed with the last mesh in it.
		if err := os.MkdirAll(string(d), 0o755); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("make the mesh's directory: %w", err)
		}
		f, err := os.Open(string(d))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a `down` removed it in between
		} else if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errBusy
			}
			return nil, fmt.Errorf("lock %s: %w", d, err)
		}
		// The directory may have been removed and made again between opening and locking.
		locked, err1 := f.Stat()
		current, err2 := os.Stat(string(d))
		if err1 == nil && err2 == nil && os.SameFile(locked, current) {
			return f, nil
		}
		f.Close()
	}
}

var errBusy = errors.New("an engine has the directory")

// clear removes what a killed mesh left, but not the directory, which is locked.
func (d runDir) clear() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(d.path(e.Name())); err != nil {
			return fmt.Errorf("remove what an earlier mesh left: %w", err)
		}
	}
	return nil
}

// lay makes the directories that a mesh starts with.
func (d runDir) lay(nodes []string) error {
	for _, dir := range []string{d.path("pods"), d.path("netns"), d.bin(), d.userObjects(), d.engineObjects()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// The control plane is not root: these are its own. Users' objects may hold secrets, which nobody else is to read.
	for dir, mode := range map[string]os.FileMode{d.path("control"): 0o700, d.path("pki"): 0o755, d.path("objects"): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
		if err := os.Chmod(dir, mode); err != nil {
			return err
		}
		if err := os.Chown(dir, controlUID, controlUID); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := os.MkdirAll(d.node(n), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// maxFileName leaves room for what is put around a name, below the 255 bytes that file systems take.
const maxFileName = 200

// fileName is a name for a file: the given one, or if that is too long its beginning and a digest of all of it.
func fileName(name string) string {
	if len(name) <= maxFileName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:16])
	return name[:maxFileName-len(digest)-1] + "-" + digest
}

// writeAtomic replaces a file so that a reader sees the old or the new one, and a watcher of *.yaml no third.
func writeAtomic(path string, data []byte, mode os.FileMode) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}

// Alive reports whether the process of a mesh's engine runs, also while the engine does not answer yet or any more.
func Alive(mesh string) bool {
	if !meshName.MatchString(mesh) {
		return false
	}
	r, err := readRecord(runDir(api.RunDir(mesh)))
	return err == nil && r.alive()
}
