package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func example(content string) Image {
	return Image{
		Name: "registry.example/mesh/thing:1.2", Architecture: "amd64",
		Config: v1.ImageConfig{User: "7:7", Entrypoint: []string{"/thing"}, Labels: map[string]string{"b": "2", "a": "1"}},
		Layer:  func(w io.Writer) error { _, err := io.WriteString(w, content); return err },
	}
}

func write(t *testing.T, image Image) (map[string][]byte, []byte, Written) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sub", "thing.tar")
	written, err := Write(file, image)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the archive there is something left: %v %v", left, err)
	}
	entries := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, data, written
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// blob finds what a descriptor describes, and compares size and digest.
func blob(t *testing.T, entries map[string][]byte, d v1.Descriptor) []byte {
	t.Helper()
	data, found := entries["blobs/sha256/"+d.Digest.Encoded()]
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); !found || sum != d.Digest.String() || int64(len(data)) != d.Size {
		t.Fatalf("%s of %d bytes: found %v, %d bytes, %s", d.Digest, d.Size, found, len(data), sum)
	}
	return data
}

func decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	var value T
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return value
}

func TestTheLayoutLeadsFromIndexToLayer(t *testing.T) {
	entries, data, written := write(t, example("the layer"))
	if layout := decode[v1.ImageLayout](t, entries["oci-layout"]); layout.Version != "1.0.0" {
		t.Errorf("layout %+v", layout)
	}
	index := decode[v1.Index](t, entries["index.json"])
	if len(index.Manifests) != 1 || index.SchemaVersion != 2 {
		t.Fatalf("index %+v", index)
	}
	d := index.Manifests[0]
	if d.Digest.String() != written.Digest || d.Annotations["io.containerd.image.name"] != "registry.example/mesh/thing:1.2" ||
		d.Annotations["org.opencontainers.image.ref.name"] != "1.2" || d.Platform.Architecture != "amd64" || d.Platform.OS != "linux" {
		t.Errorf("manifest's descriptor %+v, written %+v", d, written)
	}
	manifest := decode[v1.Manifest](t, blob(t, entries, d))
	config := decode[v1.Image](t, blob(t, entries, manifest.Config))
	if config.Config.User != "7:7" || config.Config.Entrypoint[0] != "/thing" || config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("config %+v", config)
	}
	zip, err := gzip.NewReader(bytes.NewReader(blob(t, entries, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(zip)
	if err != nil || string(layer) != "the layer" || written.Unpacked != int64(len(layer)) {
		t.Errorf("layer %q, %v, written %+v", layer, err, written)
	}
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0].String() != sum {
		t.Errorf("the configuration names layer %v, it is %s", config.RootFS.DiffIDs, sum)
	}
	if written.Archive != int64(len(data)) {
		t.Errorf("the archive has %d bytes, said are %d", len(data), written.Archive)
	}
	docker := decode[[]struct {
		Config           string
		RepoTags, Layers []string
	}](t, entries["manifest.json"])
	if len(docker) != 1 || entries[docker[0].Config] == nil || entries[docker[0].Layers[0]] == nil || docker[0].RepoTags[0] != "registry.example/mesh/thing:1.2" {
		t.Errorf("Docker's manifest %+v", docker)
	}
}

func TestEqualImagesAreEqualArchivesAndOthersAreNot(t *testing.T) {
	_, first, one := write(t, example("x"))
	_, second, two := write(t, example("x"))
	if !bytes.Equal(first, second) || one != two {
		t.Errorf("the same image twice: %+v and %+v", one, two)
	}
	_, _, layer := write(t, example("y"))
	user := example("x")
	user.Config.User = "8"
	_, _, config := write(t, user)
	if layer.Digest == one.Digest || config.Digest == one.Digest {
		t.Errorf("another layer or user, and the same digest: %s %s %s", one.Digest, layer.Digest, config.Digest)
	}
}

func TestAFailureLeavesNoArchive(t *testing.T) {
	dir := t.TempDir()
	broken := example("")
	broken.Layer = func(io.Writer) error { return errors.New("disk on fire") }
	if _, err := Write(filepath.Join(dir, "x.tar"), broken); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "thing", "thing:1", "registry:5000/thing", "registry/thing:"} {
		image := example("")
		image.Name = name
		if _, err := Write(filepath.Join(dir, "y.tar"), image); err == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
