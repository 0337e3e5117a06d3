package rootfs

import (
	"debug/elf"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Unloadable names every program and library of the tree that cannot be loaded in it, with what it lacks: its dynamic
// loader where it names it, or a library. A library that lies where no loader looks counts as well if it lies below the
// directory of what needs it: programs such as Java load those by path before.
func (t *Tree) Unloadable() []string {
	dirs := t.libraryDirs()
	var complaints []string
	for name, node := range t.All() {
		if node.Content == nil || !isELF(node.Content) {
			continue
		}
		lacks, err := t.lacks(name, node, dirs)
		if err != nil {
			complaints = append(complaints, fmt.Sprintf("/%s: %v", name, err))
			continue
		}
		for _, lack := range lacks {
			complaints = append(complaints, fmt.Sprintf("/%s needs %s, which is not in the image", name, lack))
		}
	}
	return complaints
}

// libraryDirs are where loaders look without being told: /lib, /usr/lib and the directories of an architecture in them.
func (t *Tree) libraryDirs() []string {
	dirs := []string{"lib", "usr/lib", "lib64", "usr/lib64"}
	for name, node := range t.All() {
		in, last := path.Split(name)
		if node.Mode.IsDir() && (in == "lib/" || in == "usr/lib/") && strings.HasSuffix(last, "-linux-gnu") {
			dirs = append(dirs, name)
		}
	}
	return dirs
}

func isELF(content Content) bool {
	magic := make([]byte, len(elf.ELFMAG))
	n, _ := content.ReadAt(magic, 0)
	return string(magic[:n]) == elf.ELFMAG
}

func (t *Tree) lacks(name string, node *Node, dirs []string) ([]string, error) {
	file, err := elf.NewFile(node.Content)
	if err != nil {
		return nil, fmt.Errorf("not a readable ELF file: %w", err)
	}
	if file.Type != elf.ET_EXEC && file.Type != elf.ET_DYN {
		return nil, nil
	}
	var missing []string
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, min(part.Filesz, 4096))
		if _, err := part.ReadAt(text, 0); err != nil {
			return nil, fmt.Errorf("read the loader's name: %w", err)
		}
		if loader := strings.TrimRight(string(text), "\x00"); !t.has(loader) {
			missing = append(missing, loader)
		}
	}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read the names of its libraries: %w", err)
	}
	searched := slices.Clone(dirs)
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		paths, err := file.DynString(tag)
		if err != nil {
			return nil, fmt.Errorf("read where it looks for libraries: %w", err)
		}
		for _, list := range paths {
			for dir := range strings.SplitSeq(list, ":") {
				searched = append(searched, strings.NewReplacer("$ORIGIN", "/"+path.Dir(name), "${ORIGIN}", "/"+path.Dir(name)).Replace(dir))
			}
		}
	}
	for _, library := range needed {
		if !slices.ContainsFunc(searched, func(dir string) bool { return t.has(path.Join(dir, library)) }) && !t.below(path.Dir(name), library) {
			missing = append(missing, library)
		}
	}
	return missing, nil
}

func (t *Tree) has(name string) bool {
	_, node, err := t.Lookup(name)
	return err == nil && node.Content != nil
}

func (t *Tree) below(dir, file string) bool {
	for name, node := range t.nodes {
		if node.Content != nil && path.Base(name) == file && strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}
