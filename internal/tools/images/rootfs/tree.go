// Package rootfs owns a root file system that is put together in memory and written as a tar archive whose bytes depend
// on nothing but its content: sorted, owned by root, without times. It does not know where files come from nor what an
// image is.
package rootfs

import (
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
)

// Content is what a file holds; it may be read more than once.
type Content interface {
	io.ReaderAt
	Size() int64
}

// Node is a directory, a regular file or a symbolic link.
type Node struct {
	Mode    fs.FileMode // Type and permissions.
	Target  string      // Where a link leads.
	Content Content     // What a file holds.

	implied bool // A directory that nobody named: something lies in it.
}

// Tree is a file system by path, without leading slash. Links on the way to a file are followed as a kernel would that
// has changed its root to the tree.
type Tree struct {
	nodes map[string]*Node
}

// mostLinks is how many symbolic links a path may lead through, as on Linux.
const mostLinks = 40

// New makes an empty tree.
func New() *Tree { return &Tree{nodes: map[string]*Node{}} }

// Merged makes a tree whose /bin, /sbin, /lib and /lib64 lead into /usr, as on every distribution of today: whatever is
// put into one of them later lies in /usr.
func Merged() *Tree {
	t := New()
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		t.nodes["usr/"+name] = directory(0o755)
		t.nodes[name] = &Node{Mode: fs.ModeSymlink | 0o777, Target: "usr/" + name}
	}
	t.nodes["usr"] = directory(0o755)
	return t
}

// Directory puts a directory. One that is there already, or that a link leads to, stays as it is.
func (t *Tree) Directory(name string, mode fs.FileMode) error {
	if bad := mode &^ (fs.ModePerm | fs.ModeDir | fs.ModeSticky); bad != 0 {
		return fmt.Errorf("directory %s: mode %v: only permissions and the sticky bit are allowed", name, mode)
	}
	if mode&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("directory %s: mode %v: everybody may write and anybody may delete; set the sticky bit", name, mode)
	}
	at, err := t.place(name)
	if err != nil || at == "" {
		return err
	}
	before := t.nodes[at]
	if before == nil || before.implied {
		t.nodes[at] = directory(mode)
		return nil
	}
	if before.Mode.Type() == fs.ModeSymlink {
		_, err = t.walk(at, true)
		return err
	}
	if !before.Mode.IsDir() {
		return fmt.Errorf("directory %s: there is a file already", name)
	}
	return nil
}

// File puts a regular file. Two files of one path are an error, as are set-user-ID, set-group-ID and world-writable ones.
func (t *Tree) File(name string, mode fs.FileMode, content Content) error {
	if mode&^fs.ModePerm != 0 {
		return fmt.Errorf("file %s: mode %v: only permissions are allowed, no set-user-ID or the like", name, mode)
	}
	if mode&0o002 != 0 {
		return fmt.Errorf("file %s: mode %v: everybody may write", name, mode)
	}
	if content == nil {
		return fmt.Errorf("file %s: it has no content, not even an empty one", name)
	}
	return t.put(name, &Node{Mode: mode, Content: content})
}

// Symlink puts a symbolic link. One that leads out of the tree is an error; one that leads to nothing is not.
func (t *Tree) Symlink(name, target string) error {
	if target == "" || strings.ContainsRune(target, 0) {
		return fmt.Errorf("link %s: %q is no target", name, target)
	}
	at, err := t.place(name)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(target, "/") {
		depth := strings.Count(at, "/")
		for part := range strings.SplitSeq(target, "/") {
			switch part {
			case "", ".":
			case "..":
				depth--
			default:
				depth++
			}
			if depth < 0 {
				return fmt.Errorf("link %s: %s leads out of the image", name, target)
			}
		}
	}
	if before := t.nodes[at]; before != nil && before.Mode.Type() == fs.ModeSymlink && before.Target == target {
		return nil
	}
	return t.put(name, &Node{Mode: fs.ModeSymlink | 0o777, Target: target})
}

// Lookup follows links and returns what lies at a path, with the path that it has without links.
func (t *Tree) Lookup(name string) (string, *Node, error) {
	at, err := t.walk(name, false)
	if err != nil {
		return "", nil, err
	}
	if at == "" {
		return "", directory(0o755), nil
	}
	return at, t.nodes[at], nil
}

// All goes through the tree in the order of paths; a directory comes before what lies in it.
func (t *Tree) All() iter.Seq2[string, *Node] {
	return func(yield func(string, *Node) bool) {
		for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
			if !yield(name, t.nodes[name]) {
				return
			}
		}
	}
}

// Size is the sum of all files' bytes.
func (t *Tree) Size() int64 {
	var sum int64
	for _, node := range t.nodes {
		if node.Content != nil {
			sum += node.Content.Size()
		}
	}
	return sum
}

func directory(mode fs.FileMode) *Node {
	return &Node{Mode: fs.ModeDir | mode&(fs.ModePerm|fs.ModeSticky)}
}

func (t *Tree) put(name string, node *Node) error {
	at, err := t.place(name)
	if err != nil {
		return err
	}
	if at == "" || t.nodes[at] != nil {
		return fmt.Errorf("%s: there is something already, and it cannot be both", name)
	}
	t.nodes[at] = node
	return nil
}

// place returns the path that name has without links on the way to it, and makes the directories that are missing.
func (t *Tree) place(name string) (string, error) {
	parts, err := inside(name)
	if err != nil || len(parts) == 0 {
		return "", err
	}
	last := len(parts) - 1
	in, err := t.walk(strings.Join(parts[:last], "/"), true)
	if err != nil {
		return "", err
	}
	return path.Join(in, parts[last]), nil
}

// inside splits a path. One with ".." is refused: archives that contain it mean no good.
func inside(name string) ([]string, error) {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..", strings.ContainsRune(part, 0):
			return nil, fmt.Errorf("path %q: leads out of where it belongs", name)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// walk follows a path through links. With make, directories that are missing on it are made.
func (t *Tree) walk(name string, make bool) (string, error) {
	rest := strings.Split(name, "/")
	at, links := "", 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return "", fmt.Errorf("path %q: leads out of the image", name)
			}
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, part)
		node := t.nodes[next]
		switch {
		case node == nil && make:
			node = directory(0o755)
			node.implied = true
			t.nodes[next] = node
			at = next
		case node == nil:
			return "", fmt.Errorf("path %q: %s: %w", name, next, fs.ErrNotExist)
		case node.Mode.Type() == fs.ModeSymlink:
			if links++; links > mostLinks {
				return "", fmt.Errorf("path %q: its links lead in a circle", name)
			}
			if strings.HasPrefix(node.Target, "/") {
				at = ""
			}
			rest = append(strings.Split(node.Target, "/"), rest...)
		case !node.Mode.IsDir() && (make || len(rest) > 0):
			return "", fmt.Errorf("path %q: %s is a file", name, next)
		default:
			at = next
		}
	}
	return at, nil
}
