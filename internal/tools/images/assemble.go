package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"lateen.dev/lateen/internal/tools/images/catalogue"
	"lateen.dev/lateen/internal/tools/images/debian"
	"lateen.dev/lateen/internal/tools/images/rootfs"
)

// passwd and group have the one user and group, besides root, that our images run as.
const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:" + catalogue.Nobody + ":" + catalogue.Nobody + ":nobody:/:/sbin/nologin\n"
	group  = "root:x:0:\nnobody:x:" + catalogue.Nobody + ":\n"
	// Names that are written down come before those that are asked for; without this file some C libraries do the reverse.
	nsswitch = "passwd: files\ngroup: files\nhosts: files dns\n"
)

// parts are where an image's content comes from.
type parts struct {
	root  string // The repository.
	bin   string
	debs  *debian.Cache
	spool string // Directory for what is unpacked.
}

// assemble puts an image's files together. The returned function must be called when the tree is not read any more.
func (p parts) assemble(ctx context.Context, image catalogue.Image, packages []debian.Package) (*rootfs.Tree, func(), error) {
	in := &inputs{}
	tree, err := p.tree(ctx, in, image, packages)
	if err == nil {
		if missing := tree.Unloadable(); len(missing) > 0 {
			err = fmt.Errorf("%d files cannot be loaded: %s", len(missing), strings.Join(missing[:min(len(missing), 5)], "; "))
		}
	}
	if err == nil {
		err = executable(tree, image)
	}
	if err != nil {
		in.close()
		return nil, nil, err
	}
	return tree, in.close, nil
}

func (p parts) tree(ctx context.Context, in *inputs, image catalogue.Image, packages []debian.Package) (*rootfs.Tree, error) {
	tree := rootfs.Merged()
	if len(packages) > 0 {
		spool, err := os.CreateTemp(p.spool, ".unpacked-*")
		if err != nil {
			return nil, err
		}
		in.open = append(in.open, spool)
		os.Remove(spool.Name()) // It lives as long as it is open.
		if err := p.debs.Unpack(ctx, tree, packages, image.Drop, spool); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"etc/passwd": passwd, "etc/group": group, "etc/nsswitch.conf": nsswitch} {
		if err := tree.File(name, 0o644, strings.NewReader(text)); err != nil {
			return nil, err
		}
	}
	// Where Kubernetes mounts something, and where everybody may write if the root is not read-only.
	for _, name := range []string{"dev", "proc", "run", "sys", "var"} {
		if err := tree.Directory(name, 0o755); err != nil {
			return nil, err
		}
	}
	if err := tree.Directory("tmp", fs.ModeSticky|0o777); err != nil {
		return nil, err
	}
	for _, program := range image.Programs {
		if err := p.program(ctx, in, tree, program); err != nil {
			return nil, err
		}
	}
	files := append([]catalogue.File{{From: "LICENSE", At: "usr/share/doc/lateen/LICENSE"}}, image.Files...)
	for _, file := range files {
		if err := in.put(tree, file.At, 0o644, filepath.Join(p.root, file.From)); err != nil {
			return nil, err
		}
	}
	for _, link := range image.Links {
		if err := tree.Symlink(link.At, link.Target); err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// program puts one of ours with its libraries, each where the loader of this machine found it.
func (p parts) program(ctx context.Context, in *inputs, tree *rootfs.Tree, program catalogue.Program) error {
	name := filepath.Join(p.bin, program.Name)
	if err := in.put(tree, program.At, 0o755, name); err != nil {
		return err
	}
	needed, err := libraries(ctx, name)
	if err != nil {
		return err
	}
	for _, library := range needed {
		if _, _, err := tree.Lookup(library); err == nil {
			continue // Another program brought it.
		}
		if err := in.put(tree, library, 0o755, library); err != nil {
			return err
		}
	}
	if len(needed) == 0 {
		return nil
	}
	// The licences of the libraries, where this machine keeps them.
	for _, of := range []string{"libc6", "libgcc-s1", "gcc-12-base"} {
		text := "/usr/share/doc/" + of + "/copyright"
		if _, _, err := tree.Lookup(text); err == nil {
			continue
		}
		if info, err := os.Stat(text); err == nil && info.Mode().IsRegular() {
			if err := in.put(tree, text, 0o644, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (in *inputs) put(tree *rootfs.Tree, at string, mode fs.FileMode, from string) error {
	content, err := in.file(from)
	if err != nil {
		return err
	}
	return tree.File(at, mode, content)
}

// executable fails when what the image starts is not a program in it.
func executable(tree *rootfs.Tree, image catalogue.Image) error {
	at, node, err := tree.Lookup(image.Entrypoint[0])
	if err != nil {
		return fmt.Errorf("entry point: %w", err)
	}
	if node.Content == nil || node.Mode&0o111 != 0o111 {
		return fmt.Errorf("entry point /%s is not a program that everybody may run", at)
	}
	return nil
}

// config is what a runtime is told about the image.
func config(image catalogue.Image, version string) v1.ImageConfig {
	ports := map[string]struct{}{}
	for _, port := range image.Ports {
		ports[port] = struct{}{}
	}
	return v1.ImageConfig{
		User: image.User + ":" + image.User, Entrypoint: image.Entrypoint, Env: image.Env, ExposedPorts: ports, WorkingDir: "/",
		Labels: map[string]string{
			v1.AnnotationTitle: image.Title, v1.AnnotationVersion: version, v1.AnnotationLicenses: image.Licences,
			v1.AnnotationSource: "https://lateen.dev/lateen",
		},
	}
}
