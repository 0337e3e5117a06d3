// Package oci owns the archive that an image is kept in: an OCI image layout in a tar file, which containerd, Podman and
// skopeo read, with the one file more that lets every version of Docker load it. It does not know what is in an image.
//
// The layout is written here, with the types of the image specification, and not by go-containerregistry: that library
// writes layouts into directories and Docker's archives into files but no layout into a file, brings Docker's client
// libraries along, and would leave what matters here, files in a fixed order without times, to its caller all the same.
package oci

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation by which `ctr images import` and the kubelet know the image.
const containerdName = "io.containerd.image.name"

// Image is what is written: one layer and its configuration.
type Image struct {
	Name         string // With registry, repository and tag.
	Architecture string // As Go names it.
	Config       v1.ImageConfig
	Layer        func(io.Writer) error // Writes the layer's tar archive.
}

// Written says what an archive holds.
type Written struct {
	Digest   string `json:"digest"`   // Of the image's manifest.
	Archive  int64  `json:"archive"`  // Bytes of the archive.
	Unpacked int64  `json:"unpacked"` // Bytes of the layer's tar.
}

// Write writes the image's archive to a file, which appears only when it is complete. Equal images are equal archives.
func Write(file string, image Image) (Written, error) {
	tag, err := tagOf(image.Name)
	if err != nil {
		return Written{}, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return Written{}, err
	}
	blob, err := os.CreateTemp(filepath.Dir(file), ".layer-*")
	if err != nil {
		return Written{}, err
	}
	defer os.Remove(blob.Name())
	defer blob.Close()
	layer, plain, unpacked, err := compress(blob, image.Layer)
	if err != nil {
		return Written{}, fmt.Errorf("write the layer of %s: %w", image.Name, err)
	}

	epoch := time.Unix(0, 0).UTC()
	config, configured := document(v1.MediaTypeImageConfig, v1.Image{
		Created:  &epoch,
		Platform: v1.Platform{Architecture: image.Architecture, OS: "linux"},
		Config:   image.Config,
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{plain}},
		History:  []v1.History{{Created: &epoch, CreatedBy: "make images"}},
	})
	manifest, described := document(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: configured, Layers: []v1.Descriptor{layer},
	})
	described.Platform = &v1.Platform{Architecture: image.Architecture, OS: "linux"}
	described.Annotations = map[string]string{containerdName: image.Name, v1.AnnotationRefName: tag}
	index, _ := document(v1.MediaTypeImageIndex, v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{described},
	})
	layout, _ := document("", v1.ImageLayout{Version: v1.ImageLayoutVersion})
	// Docker before 25, and Docker without containerd's store, look for this file and follow its paths.
	docker, _ := document("", []map[string]any{{
		"Config": pathOf(configured), "RepoTags": []string{image.Name}, "Layers": []string{pathOf(layer)},
	}})
	entries := []entry{
		{name: v1.ImageLayoutFile, bytes: layout}, {name: v1.ImageIndexFile, bytes: index}, {name: "manifest.json", bytes: docker},
		{name: pathOf(configured), bytes: config}, {name: pathOf(described), bytes: manifest}, {name: pathOf(layer), file: blob, size: layer.Size},
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	size, err := archive(file, entries)
	if err != nil {
		return Written{}, fmt.Errorf("write %s: %w", file, err)
	}
	return Written{Digest: described.Digest.String(), Archive: size, Unpacked: unpacked}, nil
}

// compress writes a layer into a file and returns its descriptor, the digest it has when it is not compressed, and the
// size it has then.
func compress(to io.Writer, write func(io.Writer) error) (v1.Descriptor, digest.Digest, int64, error) {
	packed, plain := counted{sum: sha256.New()}, counted{sum: sha256.New()}
	// Time to make counts more than bytes to move: most of these archives go no further than this machine.
	zip, err := gzip.NewWriterLevel(io.MultiWriter(to, &packed), gzip.BestSpeed)
	if err == nil {
		err = write(io.MultiWriter(zip, &plain))
	}
	if err == nil {
		err = zip.Close()
	}
	return v1.Descriptor{MediaType: v1.MediaTypeImageLayerGzip, Digest: packed.digest(), Size: packed.size}, plain.digest(), plain.size, err
}

// counted sums and counts what is written to it.
type counted struct {
	sum interface {
		io.Writer
		Sum([]byte) []byte
	}
	size int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.sum.Write(p)
}

func (c *counted) digest() digest.Digest {
	return digest.NewDigestFromEncoded(digest.SHA256, hex.EncodeToString(c.sum.Sum(nil)))
}

// document encodes one of the specification's types, whose fields have an order, and describes the bytes.
func document(mediaType string, value any) ([]byte, v1.Descriptor) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // No value of these types cannot be encoded.
	}
	return data, v1.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

func pathOf(d v1.Descriptor) string {
	return v1.ImageBlobsDir + "/" + d.Digest.Algorithm().String() + "/" + d.Digest.Encoded()
}

// tagOf returns the tag of a full image name.
func tagOf(name string) (string, error) {
	last := name[strings.LastIndex(name, "/")+1:]
	_, tag, found := strings.Cut(last, ":")
	if !found || tag == "" || last == name {
		return "", fmt.Errorf("image name %q: want REGISTRY/REPOSITORY:TAG", name)
	}
	return tag, nil
}

// entry is a file of the archive: bytes, or the beginning of another file.
type entry struct {
	name  string
	bytes []byte
	file  *os.File
	size  int64
}

func archive(file string, entries []entry) (int64, error) {
	out, err := os.CreateTemp(filepath.Dir(file), ".image-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	w := tar.NewWriter(out)
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return 0, err
		}
	}
	for _, e := range entries {
		content := io.Reader(strings.NewReader(string(e.bytes)))
		if e.file == nil {
			e.size = int64(len(e.bytes))
		} else {
			content = io.NewSectionReader(e.file, 0, e.size)
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o644, Size: e.size, ModTime: time.Unix(0, 0)}); err != nil {
			return 0, err
		}
		if _, err := io.Copy(w, content); err != nil {
			return 0, err
		}
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	if err := out.Chmod(0o644); err != nil {
		return 0, err
	}
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(out.Name(), file)
}
