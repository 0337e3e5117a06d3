// Command images makes the container images of the mesh and of its samples, without a container engine: it puts programs
// of bin/, files of the repository and Debian packages together (rootfs, debian) and writes archives that every engine
// reads (oci). Which images there are says catalogue; it builds no program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"

	"lateen.dev/lateen/internal/tools/images/catalogue"
	"lateen.dev/lateen/internal/tools/images/debian"
	"lateen.dev/lateen/internal/tools/images/oci"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

type options struct {
	root, bin, out, cache, mirror string
	repository, version           string
	fresh                         bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: images -version VERSION [flags] [IMAGE...]\nimages: %s\n", strings.Join(names(), " "))
		flags.PrintDefaults()
	}
	flags.StringVar(&o.root, "root", ".", "the repository")
	flags.StringVar(&o.bin, "bin", "bin", "where the programs are")
	flags.StringVar(&o.out, "out", "bin/images", "where archives are written")
	flags.StringVar(&o.cache, "cache", "", "where Debian packages are kept (lateen/debs in the user's cache directory)")
	flags.StringVar(&o.mirror, "mirror", os.Getenv("DEBIAN_MIRROR"), "where Debian packages come from (http://deb.debian.org/debian)")
	flags.StringVar(&o.repository, "repository", "docker.io/lateen", "registry and path before every image's name")
	flags.StringVar(&o.version, "version", "", "tag of the images (required)")
	flags.BoolVar(&o.fresh, "fresh", false, "ask Debian's archive again which packages there are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.version == "" {
		return errors.New("no -version: name the tag of the images")
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}
	if o.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no place for Debian packages: %w; name one with -cache", err)
		}
		o.cache = filepath.Join(dir, "lateen", "debs")
	}
	return o.make(ctx, chosen, stdout, stderr)
}

func names() []string {
	var all []string
	for _, image := range catalogue.All() {
		all = append(all, image.Name)
	}
	return all
}

func choose(wanted []string) ([]catalogue.Image, error) {
	if len(wanted) == 0 {
		return catalogue.All(), nil
	}
	var chosen []catalogue.Image
	for _, name := range wanted {
		image, found := catalogue.Find(name)
		if !found {
			return nil, fmt.Errorf("there is no image %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, image)
	}
	return chosen, nil
}

// made is a line of the table.
type made struct {
	name, archive string
	oci.Written
}

func (o options) make(ctx context.Context, images []catalogue.Image, stdout, stderr io.Writer) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	say := func(format string, v ...any) { fmt.Fprintf(stderr, "images: "+format+"\n", v...) }
	p := parts{
		root: o.root, bin: o.bin, spool: o.out,
		debs: &debian.Cache{Dir: o.cache, Mirror: o.mirror, Fresh: o.fresh, Say: say},
	}
	var table []made
	for _, image := range images {
		line, err := o.one(ctx, p, image, say)
		if err != nil {
			return fmt.Errorf("%s: %w", image.Name, err)
		}
		table = append(table, line)
	}
	show(stdout, table, o.out)
	return nil
}

func (o options) one(ctx context.Context, p parts, image catalogue.Image, say func(string, ...any)) (made, error) {
	name := o.repository + "/" + image.Name + ":" + o.version
	line := made{name: name, archive: filepath.Join(o.out, image.Name+".tar")}
	var packages []debian.Package
	if len(image.Packages) > 0 {
		var err error
		set := debian.Set{Suite: catalogue.Suite, Arch: catalogue.DebianArch(), Want: image.Packages, Without: image.Without}
		if packages, err = p.debs.Packages(ctx, set); err != nil {
			return line, err
		}
	}
	from, err := p.from(ctx, image, name, o.version, packages)
	if err != nil {
		return line, err
	}
	var known bool
	if line.Written, known = unchanged(line.archive, from); known {
		return line, nil
	}
	tree, done, err := p.assemble(ctx, image, packages)
	if err != nil {
		return line, err
	}
	defer done()
	if size := tree.Size(); size > int64(image.MostMB)*1e6 {
		say("%s holds %.1f MB, and is meant to stay below %d: is something in bin/ a debug build?", image.Name, float64(size)/1e6, image.MostMB)
	}
	line.Written, err = oci.Write(line.archive, oci.Image{
		Name: name, Architecture: runtime.GOARCH, Config: config(image, o.version), Layer: tree.WriteTar,
	})
	if err != nil {
		return line, err
	}
	return line, remember(line.archive, from, line.Written)
}

func show(w io.Writer, table []made, out string) {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "IMAGE\tARCHIVE MB\tUNPACKED MB\tDIGEST")
	for _, line := range table {
		fmt.Fprintf(columns, "%s\t%.1f\t%.1f\t%s\n", line.name, float64(line.Archive)/1e6, float64(line.Unpacked)/1e6, line.Digest)
	}
	columns.Flush()
	fmt.Fprintf(w, "\nNext, on every node of a cluster: ctr -n k8s.io images import %s/NAME.tar\n", out)
}
