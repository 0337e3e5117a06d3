package podinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// enter changes the calling process's own mount namespace into the pod's view.
func (s *Setup) enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	// Sources are opened before anything is hidden: they may lie below what will be.
	sources := map[string]*os.File{}
	defer func() {
		for _, f := range sources {
			f.Close()
		}
	}()
	for _, m := range []map[string]string{s.Files, s.Dirs} {
		for target, source := range m {
			fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open %s: %w", source, err)
			}
			sources[target] = os.NewFile(uintptr(fd), source)
		}
	}
	for target := range s.Files {
		if err := bind(sources[target], target); err != nil {
			return err
		}
	}
	if err := s.hide(sources); err != nil {
		return err
	}
	for _, dir := range s.Scratch {
		if err := tmpfs(dir, 0o1777, s.ScratchMax); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// Last: the sources are reached through the old /proc.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// hide puts an empty file system over the engine's run directories and shows in it only what the pod may see.
func (s *Setup) hide(sources map[string]*os.File) error {
	if err := tmpfs(s.Hidden, 0o755, 1<<20); err != nil {
		return err
	}
	for target := range s.Dirs {
		if rel, err := filepath.Rel(s.Hidden, target); err != nil || !filepath.IsLocal(rel) {
			return fmt.Errorf("directory %s is not below %s", target, s.Hidden)
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := bind(sources[target], target); err != nil {
			return err
		}
		flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
		if err := unix.Mount("", target, "", flags, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", target, err)
		}
	}
	return unix.Mount("", s.Hidden, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

func bind(source *os.File, target string) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show %s as %s: %w", source.Name(), target, err)
	}
	return nil
}

func tmpfs(dir string, mode os.FileMode, size int64) error {
	perm := uint32(mode.Perm())
	if mode&0o1000 != 0 {
		perm |= 0o1000
	}
	data := fmt.Sprintf("mode=%o,size=%d", perm, size)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount an empty file system on %s: %w", dir, err)
	}
	return nil
}
