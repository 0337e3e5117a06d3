package rootfs

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// WriteTar writes the tree as an archive: in the order of paths, everything owned by root and last changed when time
// began, so that equal trees are equal bytes.
func (t *Tree) WriteTar(w io.Writer) error {
	archive := tar.NewWriter(w)
	for name, node := range t.All() {
		if err := write(archive, name, node); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return archive.Close()
}

func write(archive *tar.Writer, name string, node *Node) error {
	header := &tar.Header{Name: name, Mode: int64(node.Mode.Perm()), ModTime: time.Unix(0, 0).UTC()}
	switch {
	case node.Mode.IsDir():
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		if node.Mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
	case node.Mode.Type() == fs.ModeSymlink:
		header.Typeflag = tar.TypeSymlink
		header.Linkname = node.Target
	default:
		header.Typeflag = tar.TypeReg
		header.Size = node.Content.Size()
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if node.Content == nil {
		return nil
	}
	_, err := io.Copy(archive, Read(node.Content))
	return err
}

// Read reads a content from its beginning.
func Read(content Content) *io.SectionReader { return io.NewSectionReader(content, 0, content.Size()) }
