package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"

	"lateen.dev/lateen/internal/tools/images/rootfs"
)

// Unpack puts the files of packages into a tree, as dpkg-deb would into a directory, but for what unneeded and drop say
// and for set-user-ID and set-group-ID bits: nothing in an image runs with more than its user has. Maintainers' scripts
// are not run. Content goes through the spool, a file that must live as long as the tree.
func (c *Cache) Unpack(ctx context.Context, tree *rootfs.Tree, packages []Package, drop []string, spool *os.File) error {
	matched := map[string]bool{}
	kept := func(name string) bool {
		if unneeded(name) {
			return false
		}
		for _, pattern := range drop {
			if under(pattern, name) {
				matched[pattern] = true
				return false
			}
		}
		return true
	}
	for _, p := range packages {
		if err := c.unpack(ctx, tree, p, kept, spool); err != nil {
			return fmt.Errorf("unpack %s %s: %w", p.Name, p.Version, err)
		}
	}
	for _, pattern := range drop {
		if !matched[pattern] {
			c.Say("%s is to be left out, and no package has it any more: drop it from the catalogue", pattern)
		}
	}
	return nil
}

func (c *Cache) unpack(ctx context.Context, tree *rootfs.Tree, p Package, kept func(string) bool, spool *os.File) error {
	if err := c.check(p); err != nil {
		return err
	}
	// Where scanners of images look for what packages are in them; there is no dpkg here whose own list it could be.
	control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", c.File(p)).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb --field: %w", err)
	}
	if err := tree.File("var/lib/dpkg/status.d/"+p.Name, 0o644, bytes.NewReader(control)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", c.File(p))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("dpkg-deb: %w", err)
	}
	err = extract(tree, out, kept, spool, mostUnpacked)
	if err != nil {
		cmd.Cancel()
	}
	io.Copy(io.Discard, out)
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("dpkg-deb --fsys-tarfile: %w: %s", ended, tail(said.String()))
	}
	return err
}

// mostUnpacked is how much a package may hold, in bytes: an archive of a few bytes can claim any number of zeros.
const mostUnpacked = 1 << 30

// extract puts an archive's files into a tree, if they come to no more than most bytes.
func extract(tree *rootfs.Tree, from io.Reader, kept func(string) bool, spool *os.File, most int64) error {
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.Trim(strings.TrimPrefix(header.Name, "./"), "/")
		if name == "" || name == "." || !kept(name) {
			continue
		}
		mode := fs.FileMode(header.Mode) & fs.ModePerm
		switch header.Typeflag {
		case tar.TypeDir:
			if header.Mode&0o1000 != 0 {
				mode |= fs.ModeSticky
			}
			err = tree.Directory(name, mode)
		case tar.TypeSymlink:
			err = tree.Symlink(name, header.Linkname)
		case tar.TypeLink:
			var node *rootfs.Node
			if _, node, err = tree.Lookup(strings.TrimPrefix(header.Linkname, "./")); err == nil {
				err = tree.File(name, mode, node.Content)
			}
		case tar.TypeReg:
			if most -= header.Size; most < 0 {
				return fmt.Errorf("%s: the package holds more than an image can be meant to", name)
			}
			var content rootfs.Content
			if content, err = keep(spool, archive); err == nil {
				err = tree.File(name, mode, content)
			}
		default:
			err = fmt.Errorf("%s: entries of type %q have no place in an image", name, header.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

// keep appends to the spool and returns the part that was appended.
func keep(spool *os.File, from io.Reader) (rootfs.Content, error) {
	begin, err := spool.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(spool, from)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(spool, begin, n), nil
}

// unneeded says whether a file serves people at a terminal, translators or the installation of packages. Licences stay.
func unneeded(name string) bool {
	if rest, found := strings.CutPrefix(name, "usr/share/doc/"); found {
		pkg, file, below := strings.Cut(rest, "/")
		return below && file != "copyright" || pkg == ""
	}
	for _, pattern := range []string{
		"usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug", "usr/share/doc-base",
		"usr/share/bash-completion", "usr/share/menu", "usr/share/applications", "usr/share/pixmaps", "usr/share/icons",
		"usr/share/gdb", "usr/share/binfmts", "usr/share/python3/runtime.d", "usr/lib/debug", "usr/lib/*/gconv", "usr/lib/valgrind",
		"etc/apt", "etc/update-motd.d", "var/cache", "var/backups",
	} {
		if under(pattern, name) {
			return true
		}
	}
	return false
}

// under says whether a path matches a pattern or lies below one that does.
func under(pattern, name string) bool {
	parts := strings.Split(name, "/")
	depth := strings.Count(pattern, "/") + 1
	if len(parts) < depth {
		return false
	}
	matches, err := path.Match(pattern, strings.Join(parts[:depth], "/"))
	return err == nil && matches
}
