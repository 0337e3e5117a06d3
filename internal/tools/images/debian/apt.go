package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// apt runs the tools of that name on lists of their own, for one suite and architecture.
type apt struct {
	options []string
}

// keyring is by what Debian's archive is believed; the package debian-archive-keyring has it on other distributions.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// startApt fetches the lists of a suite, with its updates and its security updates.
func startApt(ctx context.Context, c *Cache, set Set) (*apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is not installed: the images of Bookinfo are made of Debian packages; the others need none (IMAGES=\"control agent proxy load\")", tool)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return nil, fmt.Errorf("%s is missing: install debian-archive-keyring, by which Debian's packages are verified", keyring)
	}
	mirror := c.Mirror
	if mirror == "" {
		mirror = "http://deb.debian.org/debian"
	}
	root, err := filepath.Abs(filepath.Join(c.Dir, "apt", set.Suite+"-"+set.Arch))
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	var sources strings.Builder
	for _, suite := range []string{mirror + " " + set.Suite, mirror + " " + set.Suite + "-updates", mirror + "-security " + set.Suite + "-security"} {
		fmt.Fprintf(&sources, "deb [arch=%s signed-by=%s] %s main\n", set.Arch, keyring, suite)
	}
	for file, text := range map[string]string{"sources.list": sources.String(), "status": ""} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	a := &apt{}
	for _, option := range []string{
		"Dir::Etc::SourceList=" + filepath.Join(root, "sources.list"), "Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null", "Dir::Etc::PreferencesParts=/dev/null",
		"Dir::State=" + root, "Dir::State::Lists=" + filepath.Join(root, "lists"), "Dir::State::Status=" + filepath.Join(root, "status"),
		"Dir::Cache=" + root, "Dir::Cache::Archives=" + filepath.Join(root, "archives"),
		"APT::Architecture=" + set.Arch, "APT::Architectures::=" + set.Arch, "APT::Sandbox::User=root",
		"Acquire::Languages=none", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false", "Acquire::Retries=3", "APT::Update::Error-Mode=any",
	} {
		a.options = append(a.options, "-o", option)
	}
	c.Say("asking %s what Debian %s has", mirror, set.Suite)
	if _, err := a.run(ctx, "", "apt-get", "-q", "update"); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *apt) show(ctx context.Context, names []string) ([]stanza, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := a.run(ctx, "", "apt-cache", append([]string{"--no-all-versions", "show"}, names...)...)
	// apt-cache fails when it has some of the packages and not others; the caller knows which it cannot do without.
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 100) {
		return nil, err
	}
	return parse(bytes.NewReader(out))
}

func (a *apt) download(ctx context.Context, dir string, packages []Package) error {
	args := []string{"-q", "download"}
	for _, p := range packages {
		args = append(args, p.Name+"="+p.Version)
	}
	_, err := a.run(ctx, dir, "apt-get", args...)
	return err
}

func (a *apt) run(ctx context.Context, dir, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, append(append([]string{}, a.options...), args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args[:min(len(args), 3)], " "), err, tail(errs.String()))
	}
	return out.Bytes(), nil
}

// tail is the end of what a tool said, on one line.
func tail(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[max(0, len(text)-400):]
}
