// Command debianroot writes the root file system of a bare Debian as a tar archive to standard output: the essential packages
// and apt, with the packages that are named and all that they depend on. Maintainers' scripts are not run, so links that
// update-alternatives makes and generated files are missing. Packages are kept in the cache of the command images.
//
//	debianroot [-cache DIR] [PACKAGE...] | tar -x -C ROOT
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"lateen.dev/lateen/internal/tools/images/catalogue"
	"lateen.dev/lateen/internal/tools/images/debian"
	"lateen.dev/lateen/internal/tools/images/rootfs"
)

// essential are the packages that Debian 12 marks as Essential, and apt: what debootstrap calls the variant minbase.
var essential = []string{
	"base-files", "base-passwd", "bash", "bsdutils", "coreutils", "dash", "debianutils", "diffutils", "dpkg", "findutils", "grep", "gzip",
	"hostname", "init-system-helpers", "libc-bin", "login", "mawk", "mount", "ncurses-base", "ncurses-bin", "passwd", "perl-base", "sed",
	"sysvinit-utils", "tar", "util-linux", "apt",
}

// virtual are dependencies that a package of another name provides: mawk is an awk.
var virtual = []string{"awk"}

func main() {
	cache := flag.String("cache", "", "where Debian packages are kept (lateen/debs in the user's cache directory)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := write(ctx, os.Stdout, *cache, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "debianroot:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, w io.Writer, dir string, packages []string) error {
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no place for Debian packages: %w; name one with -cache", err)
		}
		dir = filepath.Join(user, "lateen", "debs")
	}
	cache := &debian.Cache{
		Dir: dir, Mirror: os.Getenv("DEBIAN_MIRROR"),
		Say: func(format string, v ...any) { fmt.Fprintf(os.Stderr, format+"\n", v...) },
	}
	found, err := cache.Packages(ctx, debian.Set{Suite: catalogue.Suite, Arch: runtime.GOARCH, Want: append(essential, packages...), Without: virtual})
	if err != nil {
		return err
	}
	spool, err := os.CreateTemp("", "debianroot-")
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return err
	}
	tree := rootfs.Merged()
	if err := cache.Unpack(ctx, tree, found, nil, spool); err != nil {
		return err
	}
	return tree.WriteTar(w)
}
