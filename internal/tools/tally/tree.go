package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// tree is the working tree that a long tier tests. The page that keeps the results is no part of it: it changes with every run.
type tree struct{ dir, page string }

// commit names the commit of the tree. A tree with changes that are not committed has none, since a result would belong to no commit.
func (t tree) commit() (string, error) {
	changed, err := t.git("status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return "", err
	}
	var files []string
	for line := range strings.Lines(changed) {
		if name := strings.TrimSpace(line[min(len(line), 3):]); name != t.page {
			files = append(files, name)
		}
	}
	if len(files) > 0 {
		return "", fmt.Errorf("results are kept for a commit, and these files differ from it: %s: commit or remove them", strings.Join(files, ", "))
	}
	name, err := t.git("rev-parse", "--short=12", "HEAD")
	return strings.TrimSpace(name), err
}

// files lists the committed files and their contents, as git's index names them.
func (t tree) files() (fileList, error) {
	list, err := t.git("ls-files", "--stage")
	if err != nil {
		return nil, err
	}
	var files fileList
	for line := range strings.Lines(list) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name != t.page {
			files = append(files, file{name: name, line: line})
		}
	}
	return files, nil
}

// file is a line of git's index, and the name in it.
type file struct{ name, line string }

type fileList []file

// digest is the same for as long as the files and folders of some paths are. It outlives a rebase, unlike the name of a commit.
func (l fileList) digest(paths []string) (string, error) {
	found := map[string]bool{}
	sum := sha256.New()
	for _, f := range l {
		counts := false
		for _, p := range paths {
			if p == "." || f.name == p || strings.HasPrefix(f.name, p+"/") {
				counts, found[p] = true, true
			}
		}
		if counts {
			sum.Write([]byte(f.line))
		}
	}
	for _, p := range paths {
		if !found[p] {
			return "", fmt.Errorf("no committed file is, or is below, %s", p)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func (t tree) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = t.dir
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}
