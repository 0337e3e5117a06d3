// Command mkimage writes one file as container engines import it: an OCI image layout in a tar archive, made of the files
// named as arguments. It serves the test cluster's own images; those of the mesh are made by `make images`.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

func main() {
	var i image
	out := flag.String("o", "", "archive to write")
	flag.StringVar(&i.name, "name", "", "name with tag, as docker.io/local/echo:1")
	flag.StringVar(&i.user, "user", "", "user and group of the process")
	flag.Var(&i.entrypoint, "entrypoint", "word of the entry point (repeated)")
	flag.Var(&i.links, "link", "/path=target of a symbolic link (repeated)")
	flag.Parse()
	i.files = flag.Args()
	if err := i.write(*out); err != nil {
		fmt.Fprintf(os.Stderr, "mkimage: %s: %v\n", *out, err)
		os.Exit(1)
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

type image struct {
	name, user        string
	entrypoint, links list
	files             []string // SOURCE:/DESTINATION
}

func (i *image) write(name string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(layer); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := i.archive(f, layer, packed.Bytes()); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// layer is the file system: the files, the links, and the folders that both and every process need.
func (i *image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true, "/": true}
	var folder func(string) error
	folder = func(name string) error {
		if name = path.Clean(name); made[name] {
			return nil
		}
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		made[name] = true
		mode := int64(0o755)
		if name == "/tmp" {
			mode = 0o1777
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name[1:] + "/", Mode: mode})
	}
	for _, name := range []string{"/tmp", "/etc", "/dev", "/proc", "/sys"} {
		if err := folder(name); err != nil {
			return nil, err
		}
	}
	for _, arg := range i.files {
		source, destination, ok := strings.Cut(arg, ":/")
		if !ok {
			return nil, fmt.Errorf("argument %q: want SOURCE:/DESTINATION", arg)
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		if err := folder(path.Dir("/" + destination)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: destination, Mode: int64(info.Mode().Perm()), Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	slices.Sort(i.links)
	for _, link := range i.links {
		name, target, ok := strings.Cut(link, "=")
		if !ok || !strings.HasPrefix(name, "/") {
			return nil, fmt.Errorf("link %q: want /PATH=TARGET", link)
		}
		if err := folder(path.Dir(name)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: target, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

type object = map[string]any

// archive follows the OCI image specification 1.0: image-layout, config, manifest and index.
func (i *image) archive(to io.Writer, layer, packed []byte) error {
	process := object{"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	if len(i.entrypoint) > 0 {
		process["Entrypoint"] = i.entrypoint
	}
	if i.user != "" {
		process["User"] = i.user
	}
	platform := object{"architecture": runtime.GOARCH, "os": "linux"}
	config, err := json.Marshal(object{"architecture": runtime.GOARCH, "os": "linux", "config": process,
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}}})
	if err != nil {
		return err
	}
	const media = "application/vnd.oci.image."
	manifest, err := json.Marshal(object{"schemaVersion": 2, "mediaType": media + "manifest.v1+json",
		"config": described(media+"config.v1+json", config),
		"layers": []any{described(media+"layer.v1.tar+gzip", packed)}})
	if err != nil {
		return err
	}
	entry := described(media+"manifest.v1+json", manifest)
	entry["platform"] = platform
	entry["annotations"] = object{
		"io.containerd.image.name":          i.name,
		"org.opencontainers.image.ref.name": i.name[strings.LastIndex(i.name, ":")+1:],
	}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": media + "index.v1+json", "manifests": []any{entry}})
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{blob(packed), packed}, {blob(config), config}, {blob(manifest), manifest},
		{"index.json", index},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func described(media string, data []byte) object {
	return object{"mediaType": media, "digest": digest(data), "size": len(data)}
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func blob(data []byte) string { return "blobs/sha256/" + strings.TrimPrefix(digest(data), "sha256:") }
