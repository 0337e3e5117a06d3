package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
)

func file(text string) Content { return strings.NewReader(text) }

func written(t *testing.T, tree *Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tree.WriteTar(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEqualTreesAreEqualBytes(t *testing.T) {
	puts := []func(*Tree) error{
		func(tree *Tree) error { return tree.File("usr/bin/a", 0o755, file("a")) },
		func(tree *Tree) error { return tree.File("etc/passwd", 0o644, file("b")) },
		func(tree *Tree) error { return tree.Symlink("etc/link", "passwd") },
		func(tree *Tree) error { return tree.Directory("tmp", fs.ModeSticky|0o777) },
		func(tree *Tree) error { return tree.Directory("etc", 0o755) },
		func(tree *Tree) error { return tree.File("bin/c", 0o755, file("c")) },
	}
	var first []byte
	for range 20 {
		tree := Merged()
		rand.Shuffle(len(puts), func(i, j int) { puts[i], puts[j] = puts[j], puts[i] })
		for _, put := range puts {
			must(t, put(tree))
		}
		now := written(t, tree)
		if first == nil {
			first = now
		}
		if !bytes.Equal(first, now) {
			t.Fatal("the order in which files were put shows in the archive")
		}
	}
}

func TestArchivesAreRootsWithoutTimesAndParentsComeFirst(t *testing.T) {
	tree := Merged()
	must(t, tree.File("opt/deep/er/file", 0o640, file("x")))
	must(t, tree.Directory("tmp", fs.ModeSticky|0o777))
	must(t, tree.File(strings.Repeat("long/", 40)+"name", 0o644, file("x")))
	seen := map[string]bool{".": true}
	archive := tar.NewReader(bytes.NewReader(written(t, tree)))
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d %q:%q and is of %v", h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if !seen[path.Dir(name)] {
			t.Errorf("%s comes before its directory", h.Name)
		}
		seen[name] = h.Typeflag == tar.TypeDir
		if name == "tmp" && h.Mode != 0o1777 {
			t.Errorf("tmp has mode %o", h.Mode)
		}
	}
	if !seen["opt/deep/er"] || !seen["usr/lib64"] || seen["lib64"] {
		t.Errorf("directories: %v", seen)
	}
}

func TestWhatIsPutIntoBinAndLibLiesInUsr(t *testing.T) {
	tree := Merged()
	must(t, tree.Directory("lib", 0o755)) // As packages from before the merge have it.
	must(t, tree.File("lib/x86_64-linux-gnu/ld-2.so", 0o755, file("loader")))
	must(t, tree.Symlink("lib64/ld.so", "/lib/x86_64-linux-gnu/ld-2.so"))
	at, node, err := tree.Lookup("/lib64/ld.so")
	must(t, err)
	if at != "usr/lib/x86_64-linux-gnu/ld-2.so" || node.Content == nil {
		t.Errorf("the loader is at %s", at)
	}
	if link := tree.nodes["lib"]; link.Mode.Type() != fs.ModeSymlink || link.Target != "usr/lib" {
		t.Errorf("lib is %v", link)
	}
}

func TestNothingLeavesTheTree(t *testing.T) {
	tree := New()
	for _, name := range []string{"../x", "a/../../x", "/../x", "a/..", "a/\x00b"} {
		if err := tree.File(name, 0o644, file("")); err == nil {
			t.Errorf("file %q is taken", name)
		}
		if err := tree.Directory(name, 0o755); err == nil {
			t.Errorf("directory %q is taken", name)
		}
		if err := tree.Symlink(name, "x"); err == nil {
			t.Errorf("link %q is taken", name)
		}
	}
	must(t, tree.Symlink("here", "."))
	for name, target := range map[string]string{"d/l": "../../x", "l": "../x", "here/here/here/l": "../../x", "e": "", "n": "a\x00"} {
		if err := tree.Symlink(name, target); err == nil {
			t.Errorf("link %s to %q is taken", name, target)
		}
	}
	must(t, tree.Symlink("a", "b"))
	must(t, tree.Symlink("b", "a"))
	if err := tree.File("a/x", 0o644, file("")); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("a circle of links: %v", err)
	}
}

func TestNobodyGetsMoreRightsThanTheirUser(t *testing.T) {
	tree := New()
	for _, mode := range []fs.FileMode{0o4755, fs.ModeSetuid | 0o755, fs.ModeSetgid | 0o755, 0o666, fs.ModeDevice | 0o644} {
		if err := tree.File("f", mode, file("")); err == nil {
			t.Errorf("a file with mode %v is taken", mode)
		}
	}
	for _, mode := range []fs.FileMode{0o777, fs.ModeSetgid | 0o755} {
		if err := tree.Directory("d", mode); err == nil {
			t.Errorf("a directory with mode %v is taken", mode)
		}
	}
}

func TestOfTwoThingsAtOnePathTheSecondIsAnError(t *testing.T) {
	tree := New()
	must(t, tree.File("d/f", 0o644, file("")))
	must(t, tree.Symlink("l", "d"))
	must(t, tree.Symlink("l", "d"))
	must(t, tree.Directory("d", 0o700))
	if mode := tree.nodes["d"].Mode.Perm(); mode != 0o700 {
		t.Errorf("a directory that was implied keeps mode %o when it is named", mode)
	}
	must(t, tree.Directory("d", 0o755))
	if mode := tree.nodes["d"].Mode.Perm(); mode != 0o700 {
		t.Errorf("a directory that was named gets mode %o from the second to name it", mode)
	}
	for what, err := range map[string]error{
		"a file on a file":        tree.File("d/f", 0o644, file("")),
		"a file through a link":   tree.File("l/f", 0o644, file("")),
		"a file on a directory":   tree.File("d", 0o644, file("")),
		"a directory on a file":   tree.Directory("d/f", 0o755),
		"a file below a file":     tree.File("d/f/g", 0o644, file("")),
		"another link on a link":  tree.Symlink("l", "e"),
		"a link on a directory":   tree.Symlink("d", "e"),
		"a file on the very root": tree.File("/", 0o644, file("")),
	} {
		if err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// Whatever is put, with whatever luck: an archive's entries lie in directories that came before, never behind a link.
func TestNoEntryLiesBehindALink(t *testing.T) {
	words := []string{"a", "b", "c", "..", ".", "", "/"}
	random := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		var parts []string
		for range 1 + random.IntN(4) {
			parts = append(parts, words[random.IntN(len(words))])
		}
		return strings.Join(parts, "/")
	}
	for round := range 2000 {
		tree, story := Merged(), ""
		for range 12 {
			n, to := name(), name()
			switch random.IntN(3) {
			case 0:
				story += fmt.Sprintf("file %s: %v\n", n, tree.File(n, 0o644, file("x")))
			case 1:
				story += fmt.Sprintf("link %s to %s: %v\n", n, to, tree.Symlink(n, to))
			default:
				story += fmt.Sprintf("directory %s: %v\n", n, tree.Directory(n, 0o755))
			}
		}
		directories := map[string]bool{".": true}
		archive := tar.NewReader(bytes.NewReader(written(t, tree)))
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			clean := path.Clean(h.Name)
			if clean != strings.TrimSuffix(h.Name, "/") || strings.HasPrefix(clean, "..") || path.IsAbs(clean) || !directories[path.Dir(clean)] {
				t.Fatalf("round %d: entry %q after\n%s", round, h.Name, story)
			}
			directories[clean] = h.Typeflag == tar.TypeDir
		}
	}
}
