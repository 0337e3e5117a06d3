package ca

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What becomes of the CA when one of its files is damaged while it does not run: without its key or certificate nothing is signed and no
// other root is made; without what it only remembers it goes on with the root it has.
func TestDamagedFiles(t *testing.T) {
	now := time.Now()
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	half := func(path string) error {
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, data[:len(data)/2], 0o600))
	}
	directory := func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }
	kinds := map[string]func(string) error{"empty": write(""), "garbage": write("\x00\xffx"), "half": half, "a directory": directory, "gone": os.Remove}
	for _, file := range []string{rootKeyFile, rootCertFile, stateFile, ledgerFile} {
		for kind, damage := range kinds {
			t.Run(file+" "+kind, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ca")
				var log bytes.Buffer
				load := func() (*Rotating, error) {
					return LoadRotating(dir, "cluster.local", time.Hour, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)), func(*Signer) {})
				}
				first, err := load()
				if err != nil {
					t.Fatal(err)
				}
				// Longer than any before, so that there is a state on disk.
				first.Issued(Holder{Node: "n1", Identity: "spiffe://cluster.local/ns/a/sa/b"}, 2*time.Hour, first.Signer())
				root := first.Signer().Bundle()
				if err := damage(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
				second, err := load()
				if file == rootKeyFile || file == rootCertFile {
					if err == nil || !strings.Contains(err.Error(), file) {
						t.Fatalf("it signs with another root, or does not name %s: %v", file, err)
					}
					return
				}
				if err != nil {
					t.Fatalf("what is only remembered stopped the CA: %v", err)
				}
				if !bytes.Equal(second.Signer().Bundle(), root) {
					t.Error("there is another root")
				}
				if file != stateFile || kind == "gone" {
					return
				}
				if trouble := second.Status().Trouble; !strings.Contains(trouble, stateFile+".damaged-") || !strings.Contains(log.String(), "damaged state") {
					t.Errorf("trouble %q, log %s", trouble, log.String())
				}
				if second.state.Lifetime < 2*time.Hour {
					t.Errorf("certificates are taken to live %s; some live longer", second.state.Lifetime)
				}
				if third, err := load(); err != nil || third.Status().Trouble != "" {
					t.Errorf("the next start: %v, trouble %q", err, third.Status().Trouble)
				}
			})
		}
	}
	for name, with := range map[string]struct {
		issued bool
		gone   []string
	}{
		"both root files gone":                            {true, []string{rootKeyFile, rootCertFile}},
		"both root files gone before anything was issued": {false, []string{rootKeyFile, rootCertFile}},
		"only what was issued is left":                    {true, []string{rootKeyFile, rootCertFile, stateFile}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ca")
			load := func() error {
				r, err := LoadRotating(dir, "cluster.local", time.Hour, func() time.Time { return now }, slog.New(slog.DiscardHandler), func(*Signer) {})
				if err == nil && with.issued {
					r.Issued(Holder{Node: "n1", Identity: "x"}, time.Minute, r.Signer())
				}
				return err
			}
			if err := load(); err != nil {
				t.Fatal(err)
			}
			for _, file := range with.gone {
				if err := os.Remove(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			if err := load(); err == nil || !strings.Contains(err.Error(), "would cut off every proxy") {
				t.Errorf("a new root was made: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(dir, rootKeyFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a new key was made: %v", err)
			}
		})
	}
}
