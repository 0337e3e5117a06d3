package files

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// links knows which names the visible links of a directory pass until they end, so that an event at such a name is one of the link.
type links struct {
	trails  map[string][]string        // link → what it passes
	through map[string]map[string]bool // name → the links that pass it
}

func newLinks() links {
	return links{trails: map[string][]string{}, through: map[string]map[string]bool{}}
}

// set replaces what a link passes; nothing if it is gone.
func (l links) set(link string, names []string) {
	for _, name := range l.trails[link] {
		delete(l.through[name], link)
		if len(l.through[name]) == 0 {
			delete(l.through, name)
		}
	}
	delete(l.trails, link)
	if len(names) == 0 {
		return
	}
	l.trails[link] = names
	for _, name := range names {
		if l.through[name] == nil {
			l.through[name] = map[string]bool{}
		}
		l.through[name][link] = true
	}
}

// passing lists the links that pass a name.
func (l links) passing(name string) []string { return slices.Sorted(maps.Keys(l.through[name])) }

// maxHops is how many links may lead to one another; Linux follows no more.
const maxHops = 40

// trail lists what a link below dir passes there, as events would name it. What is not there yet is listed, too: it may come.
func trail(dir, link string) []string {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil
	}
	below, err := filepath.Rel(dir, link)
	if err != nil {
		return nil
	}
	var names []string
	at, rest := root, strings.Split(below, string(filepath.Separator))
	for hops := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		at = filepath.Join(at, name)
		if below, err := filepath.Rel(root, at); err == nil && filepath.IsLocal(below) && hops > 0 {
			names = append(names, filepath.Join(dir, below))
		}
		target, err := os.Readlink(at)
		if err != nil {
			continue // no link, or not there
		}
		if hops++; hops > maxHops {
			break
		}
		rest = append(strings.Split(target, string(filepath.Separator)), rest...)
		if at = filepath.Dir(at); filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
	}
	return names
}
