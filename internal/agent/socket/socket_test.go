package socket

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestASocketReplacesWhateverHasItsName(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"nothing":     func(string) error { return nil },
		"a file":      func(path string) error { return os.WriteFile(path, []byte("x"), 0o644) },
		"a folder":    func(path string) error { return os.Mkdir(path, 0o755) },
		"a full one":  func(path string) error { return os.MkdirAll(filepath.Join(path, "a", "b"), 0o755) },
		"a dead link": func(path string) error { return os.Symlink("/nowhere/at/all", path) },
		"a former socket": func(path string) error {
			l, err := Listen("unixpacket", path)
			if err == nil {
				err = l.Close()
			}
			return err
		},
		"two full folders": func(path string) error {
			if err := os.MkdirAll(filepath.Join(path+asideEnd, "c"), 0o755); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(path, "a", "b"), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.sock")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			for _, network := range []string{"unixpacket", "unix"} {
				l, err := Listen(network, path)
				if err != nil {
					t.Fatal(err)
				}
				i, err := os.Lstat(path)
				if err != nil || i.Mode() != fs.ModeSocket|0o600 {
					t.Errorf("the file is %v, %v", i.Mode(), err)
				}
				conn, err := net.Dial(network, path)
				if err != nil {
					t.Fatal(err)
				}
				conn.Close()
				l.Close()
			}
		})
	}
}

// A link in the way is replaced, and what it leads to stays as it was.
func TestALinkInTheWayIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "s.sock")
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(victim, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	l, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, mode := range map[string]fs.FileMode{victim: fs.ModeDir | 0o755, filepath.Join(victim, "file"): 0o644} {
		if i, err := os.Lstat(name); err != nil || i.Mode() != mode {
			t.Errorf("%s is %v, %v", name, i.Mode(), err)
		}
	}
}
