package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lateen.dev/lateen/internal/tools/images/catalogue"
	"lateen.dev/lateen/internal/tools/images/debian"
	"lateen.dev/lateen/internal/tools/images/oci"
)

// record lies beside an archive and says from what it was made, so that it is not made again from the same.
type record struct {
	From    string      `json:"from"`
	Written oci.Written `json:"written"`
}

// from sums up all that an image's bytes depend on: this program, the catalogue's entry, names, packages, files.
func (p parts) from(ctx context.Context, image catalogue.Image, name, version string, packages []debian.Package) (string, error) {
	sum := sha256.New()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	files := []string{self, filepath.Join(p.root, "LICENSE")}
	for _, program := range image.Programs {
		binary := filepath.Join(p.bin, program.Name)
		linked, err := libraries(ctx, binary)
		if err != nil {
			return "", err
		}
		files = append(append(files, binary), linked...)
	}
	for _, file := range image.Files {
		files = append(files, filepath.Join(p.root, file.From))
	}
	if err := json.NewEncoder(sum).Encode([]any{image, name, version, packages}); err != nil {
		return "", err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		n, err := io.Copy(sum, f)
		f.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "\n%d\n", n)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// unchanged returns what is known of an archive, if it is there and was made of the same.
func unchanged(archive, from string) (oci.Written, bool) {
	data, err := os.ReadFile(recordOf(archive))
	if err != nil {
		return oci.Written{}, false
	}
	var r record
	if json.Unmarshal(data, &r) != nil || r.From != from {
		return oci.Written{}, false
	}
	info, err := os.Stat(archive)
	return r.Written, err == nil && info.Size() == r.Written.Archive
}

func remember(archive, from string, written oci.Written) error {
	data, err := json.Marshal(record{From: from, Written: written})
	if err != nil {
		return err
	}
	return os.WriteFile(recordOf(archive), append(data, '\n'), 0o644)
}

func recordOf(archive string) string {
	return filepath.Join(filepath.Dir(archive), "."+filepath.Base(archive)+".json")
}
