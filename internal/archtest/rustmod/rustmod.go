// Package rustmod reads which modules of a Rust crate use which, from its sources. It follows `use` declarations, re-exports
// and paths; it expands no macros. Items under #[cfg(test)] do not count. A method that is called on a value, without a path, is
// not seen.
package rustmod

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Crate is the graph of a crate's modules, one of which is a source file. A name is a path such as "node::dial"; the root is "".
type Crate struct {
	modules map[string]*module
	// uses holds, for each module, the modules that define what it uses.
	uses map[string]map[string]bool
}

// module is one source file.
type module struct {
	tokens []string
	// imports are the names that `use` declarations bring in, with the absolute paths that they stand for.
	imports map[string][]string
}

// Load reads the crate whose sources are in a directory: lib.rs, or main.rs where that is missing, and the files that it declares.
func Load(dir string) (*Crate, error) {
	c := &Crate{modules: map[string]*module{}, uses: map[string]map[string]bool{}}
	root := filepath.Join(dir, "lib.rs")
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		root = filepath.Join(dir, "main.rs")
	}
	if err := c.read(root, nil); err != nil {
		return nil, err
	}
	for name, m := range c.modules {
		m.imports = map[string][]string{}
		for _, u := range declarations(m.tokens) {
			if at := c.absolute(name, u.path); at != nil && u.name != "*" {
				m.imports[u.name] = at
			}
		}
	}
	for name, m := range c.modules {
		c.uses[name] = map[string]bool{}
		use := func(at []string) {
			if to := c.definer(at, 0); to != name {
				c.uses[name][to] = true
			}
		}
		for _, path := range used(m.tokens) {
			if at := c.absolute(name, path); at != nil {
				use(at)
			} else if imported, is := m.imports[path[0]]; is {
				use(append(slices.Clone(imported), path[1:]...))
			}
		}
		for _, d := range declarations(m.tokens) {
			if d.name != "*" || d.exported {
				continue
			}
			if at := c.absolute(name, d.path); at != nil {
				c.useByGlob(name, at, use)
			}
		}
	}
	return c, nil
}

// useByGlob follows the names of a module's code that an import of all names, of the module at a path, brings in.
func (c *Crate) useByGlob(name string, at []string, use func([]string)) {
	from := c.modules[c.definer(at, 0)]
	if from == nil {
		return
	}
	named := mentioned(c.modules[name].tokens)
	for imported, path := range from.imports {
		if named[imported] {
			use(path)
		}
	}
}

// read adds a module's file, and those of the modules that it declares.
func (c *Crate) read(file string, path []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	tokens := flattened(withoutTests(tokenize(string(text))))
	c.modules[strings.Join(path, "::")] = &module{tokens: tokens}
	base := strings.TrimSuffix(file, ".rs")
	switch filepath.Base(base) {
	case "lib", "main", "mod":
		base = filepath.Dir(file)
	}
	for i := 0; i+2 < len(tokens); i++ {
		if tokens[i] != "mod" || tokens[i+2] != ";" {
			continue
		}
		child := tokens[i+1]
		at := filepath.Join(base, child+".rs")
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			at = filepath.Join(base, child, "mod.rs")
		}
		if err := c.read(at, append(slices.Clone(path), child)); err != nil {
			return err
		}
	}
	return nil
}

// absolute is a path from the crate's root; nil for a path that leads out of the crate, or to an item of the module itself.
func (c *Crate) absolute(module string, path []string) []string {
	var at []string
	if module != "" {
		at = strings.Split(module, "::")
	}
	switch path[0] {
	case "crate":
		return path[1:]
	case "self":
		return append(at, path[1:]...)
	case "super":
		for len(path) > 0 && path[0] == "super" && len(at) > 0 {
			at, path = at[:len(at)-1], path[1:]
		}
		return append(slices.Clone(at), path...)
	}
	if _, child := c.modules[strings.Join(append(slices.Clone(at), path[0]), "::")]; child {
		return append(at, path...)
	}
	return nil
}

// mostReexports bounds how many re-exports lead from a path to the item that it means.
const mostReexports = 10

// definer is the module that defines what an absolute path means: re-exports are followed.
func (c *Crate) definer(path []string, followed int) string {
	known := len(path)
	for known > 0 && c.modules[strings.Join(path[:known], "::")] == nil {
		known--
	}
	name := strings.Join(path[:known], "::")
	if known == len(path) || followed == mostReexports {
		return name
	}
	imported, is := c.modules[name].imports[path[known]]
	if !is || slices.Equal(imported, path[:known+1]) {
		return name
	}
	return c.definer(append(slices.Clone(imported), path[known+1:]...), followed+1)
}
