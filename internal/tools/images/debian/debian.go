// Package debian owns what becomes of a list of Debian packages: which others they need, the files of all of them in a
// cache, and their content in a tree without what only people and installers read. It runs apt-get, apt-cache and
// dpkg-deb, with lists and a state of its own: neither what is installed on this machine nor where that came from counts.
package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Set is what an image wants.
type Set struct {
	Suite   string   `json:"suite"`   // Debian's release, by its code name.
	Arch    string   `json:"arch"`    // As Debian names it.
	Want    []string `json:"want"`    // Packages by name; what they depend on comes along.
	Without []string `json:"without"` // Dependencies that are left out, with what only they depend on.
}

// Package is one of those that a set comes to.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
}

// Cache keeps packages, and which of them a set came to, in a directory.
type Cache struct {
	Dir    string
	Mirror string                        // Where packages come from: http://deb.debian.org/debian, if empty.
	Say    func(format string, v ...any) // Told what takes long.
	Fresh  bool                          // Whether the archive is asked again about sets whose packages are known.

	apt *apt // Once it was needed.
}

// Packages returns the packages of a set by name. They are downloaded the first time; after that the archive is not asked
// again, so that the same packages come of the same set until the cache is told to be fresh, or is deleted.
func (c *Cache) Packages(ctx context.Context, set Set) ([]Package, error) {
	lock := filepath.Join(c.Dir, set.key()+".json")
	if !c.Fresh {
		if packages, ok := c.locked(lock); ok {
			return packages, nil
		}
	}
	unlock, err := c.alone()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if packages, ok := c.locked(lock); ok && !c.Fresh {
		return packages, nil // Somebody else has asked meanwhile.
	}
	if c.apt == nil {
		a, err := startApt(ctx, c, set)
		if err != nil {
			return nil, err
		}
		c.apt = a
	}
	packages, idle, err := closure(set, func(names []string) ([]stanza, error) { return c.apt.show(ctx, names) })
	if err != nil {
		return nil, err
	}
	// No error: an update of Debian's must not stop whoever makes images.
	for _, name := range idle {
		c.Say("%s is to be left out, and nothing depends on it any more: drop it from the catalogue", name)
	}
	if err := c.download(ctx, packages); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(packages, "", "  ")
	if err != nil {
		return nil, err
	}
	return packages, replace(lock, append(data, '\n'))
}

// File is where a package lies.
func (c *Cache) File(p Package) string {
	return filepath.Join(c.Dir, "pool", p.SHA256[:16]+"_"+p.Name+".deb")
}

// alone waits until no other process fills the cache: apt-get refuses to work on lists that another one works on.
func (c *Cache) alone() (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		c.Say("waiting for another process that fills %s", c.Dir)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", c.Dir, err)
		}
	}
	return func() { f.Close() }, nil
}

// locked reads which packages a set came to. It says no when one of their files is not what it was: all is asked again.
func (c *Cache) locked(lock string) ([]Package, bool) {
	data, err := os.ReadFile(lock)
	if err != nil {
		return nil, false
	}
	var packages []Package
	if json.Unmarshal(data, &packages) != nil || len(packages) == 0 {
		return nil, false
	}
	for _, p := range packages {
		if len(p.SHA256) != 2*sha256.Size {
			return nil, false
		}
		if info, err := os.Stat(c.File(p)); err != nil || info.Size() != p.Size {
			return nil, false
		}
	}
	return packages, true
}

func (c *Cache) download(ctx context.Context, packages []Package) error {
	missing := slices.DeleteFunc(slices.Clone(packages), func(p Package) bool {
		info, err := os.Stat(c.File(p))
		return err == nil && info.Size() == p.Size
	})
	if len(missing) == 0 {
		return nil
	}
	var size int64
	for _, p := range missing {
		size += p.Size
	}
	c.Say("downloading %d Debian packages, %.1f MB", len(missing), float64(size)/1e6)
	if err := os.MkdirAll(filepath.Join(c.Dir, "pool"), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.Dir, "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := c.apt.download(ctx, dir, missing); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	bySum := map[string]string{}
	for _, file := range files {
		sum, err := sumOf(file)
		if err != nil {
			return err
		}
		bySum[sum] = file
	}
	for _, p := range missing {
		file, found := bySum[p.SHA256]
		if !found {
			return fmt.Errorf("download %s %s: no file with SHA-256 %s came; the archive changed meanwhile: try again", p.Name, p.Version, p.SHA256)
		}
		if err := os.Rename(file, c.File(p)); err != nil {
			return err
		}
	}
	return nil
}

// check compares a package in the cache with the sum that the archive's signed index has for it.
func (c *Cache) check(p Package) error {
	sum, err := sumOf(c.File(p))
	if err != nil {
		return err
	}
	if sum != p.SHA256 {
		return fmt.Errorf("%s is damaged: its SHA-256 is %s and not %s; delete it and try again", c.File(p), sum, p.SHA256)
	}
	return nil
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// key names a set by all that decides what it comes to.
func (s Set) key() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Suite, s.Arch, strings.Join(s.Want, " "), strings.Join(s.Without, " ")}, "\n")))
	return hex.EncodeToString(sum[:8])
}

// replace writes a file that appears only when it is complete.
func replace(file string, data []byte) error {
	next := fmt.Sprintf("%s.%d-%d", file, os.Getpid(), time.Now().UnixNano())
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}
