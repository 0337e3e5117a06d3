package debian

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/tools/images/rootfs"
)

// index answers as apt-cache would.
func index(lines ...string) func([]string) ([]stanza, error) {
	return func(names []string) ([]stanza, error) {
		var text strings.Builder
		for _, line := range lines {
			name, depends, _ := strings.Cut(line, ": ")
			if slices.Contains(names, name) {
				fmt.Fprintf(&text, "Package: %s\nVersion: 1\nSize: 10\nSHA256: %064d\nDepends: %s\nDescription: short\n long\n  longer\n\n", name, 0, depends)
			}
		}
		return parse(strings.NewReader(text.String()))
	}
}

func TestDependenciesAreFollowed(t *testing.T) {
	show := index("app: libc (>= 2.3), old | new, interp:any", "libc: libgcc", "libgcc: libc", "new: ", "interp: libc, dpkg | installer",
		"dpkg: tar", "tar: ", "late: other | new", "mail: none | mta")
	for _, c := range []struct {
		want, without []string
		found, idle   string
		err           string
	}{
		{want: []string{"app"}, found: "app dpkg interp libc libgcc new tar"},
		{want: []string{"app"}, without: []string{"dpkg"}, found: "app interp libc libgcc new"},
		{want: []string{"late", "app"}, without: []string{"dpkg"}, found: "app interp late libc libgcc new"},
		{want: []string{"app"}, without: []string{"tar", "libc"}, found: "app dpkg interp new"},
		{want: []string{"mail"}, err: "mail needs none or mta: Debian s has no such package for a"},
		{want: []string{"gone"}, err: "the image needs gone"},
		{want: []string{"libc"}, without: []string{"tar"}, found: "libc libgcc", idle: "tar"},
	} {
		packages, idle, err := closure(Set{Suite: "s", Arch: "a", Want: c.want, Without: c.without}, show)
		var names []string
		for _, p := range packages {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); c.err == "" && (err != nil || got != c.found || strings.Join(idle, " ") != c.idle) {
			t.Errorf("%v without %v: %s, %v, %v; want %s, %s", c.want, c.without, got, idle, err, c.found, c.idle)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: error %v, want %s", c.want, err, c.err)
		}
	}
}

func TestAnIndexThatSaysTooLittleIsRefused(t *testing.T) {
	for _, text := range []string{"Package: a\nVersion: 1\nSize: x\nSHA256: 00", "Package: a\nSize: 1\nVersion: 1", " continued: nothing", "no field"} {
		_, _, err := closure(Set{Want: []string{"a"}}, func([]string) ([]stanza, error) { return parse(strings.NewReader(text)) })
		if err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestDocumentationGoesAndLicencesStay(t *testing.T) {
	for name, gone := range map[string]bool{
		"usr/share/doc/libc6/copyright": false, "usr/share/doc/libc6": false, "usr/share/doc/libc6/changelog.gz": true,
		"usr/share/doc/libc6/copyright.d/x": true, "usr/share/man": true, "usr/share/man/man1/ls.1": true, "usr/share/manual": false,
		"usr/lib/x86_64-linux-gnu/gconv/x.so": true, "usr/lib/x86_64-linux-gnu/libc.so.6": false, "usr/share/locale/de/x.mo": true,
		"usr/bin/python3": false, "etc/os-release": false,
	} {
		if unneeded(name) != gone {
			t.Errorf("%s is left out: %v, want %v", name, !gone, gone)
		}
	}
}

type entry struct {
	tar.Header
	text string
}

func archive(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.text))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func spool(t testing.TB) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func all(string) bool { return true }

func TestPackagesBecomeATree(t *testing.T) {
	tree := rootfs.Merged()
	err := extract(tree, archive(t,
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}},
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755}},
		entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "./bin/su", Mode: 0o4755}, text: "su"},
		entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "./usr/bin/also", Linkname: "./bin/su", Mode: 0o755}},
		entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./usr/bin/link", Linkname: "../../bin/su"}},
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./var/mail/", Mode: 0o2775}},
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./tmp/", Mode: 0o1777}},
		entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "./usr/left/out", Mode: 0o644}, text: "no"},
	), func(name string) bool { return name != "usr/left/out" }, spool(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"usr/bin/su": 0o755, "usr/bin/also": 0o755, "usr/bin/link": 0o755, "var/mail": fs.ModeDir | 0o775, "tmp": fs.ModeDir | fs.ModeSticky | 0o777,
	} {
		_, node, err := tree.Lookup(name)
		if err != nil || node.Mode != want {
			t.Errorf("%s: %v, %v; want mode %v", name, node, err, want)
		}
		if err == nil && node.Content != nil && node.Content.Size() != 2 {
			t.Errorf("%s holds %d bytes", name, node.Content.Size())
		}
	}
	if _, _, err := tree.Lookup("usr/left/out"); err == nil {
		t.Error("what was to be left out is there")
	}
}

func TestPackagesThatMeanNoGoodAreRefused(t *testing.T) {
	for what, e := range map[string]entry{
		"a path that leads out": {Header: tar.Header{Typeflag: tar.TypeReg, Name: "./../x", Mode: 0o644}},
		"a link that leads out": {Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "./x", Linkname: "../x"}},
		"a link to nothing":     {Header: tar.Header{Typeflag: tar.TypeLink, Name: "./x", Linkname: "./nowhere"}},
		"a link to a directory": {Header: tar.Header{Typeflag: tar.TypeLink, Name: "./x", Linkname: "./"}},
		"a device":              {Header: tar.Header{Typeflag: tar.TypeBlock, Name: "./dev/sda", Mode: 0o600}},
		"a pipe":                {Header: tar.Header{Typeflag: tar.TypeFifo, Name: "./pipe", Mode: 0o600}},
		"too much":              {Header: tar.Header{Typeflag: tar.TypeReg, Name: "./x", Mode: 0o644}, text: strings.Repeat("x", 101)},
		"a writable file":       {Header: tar.Header{Typeflag: tar.TypeReg, Name: "./x", Mode: 0o666}},
		"an open directory":     {Header: tar.Header{Typeflag: tar.TypeDir, Name: "./x", Mode: 0o777}},
	} {
		if err := extract(rootfs.New(), archive(t, e), all, spool(t), 100); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestTheCacheIsBelievedOnlyWhenItIsWhole(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	lock := filepath.Join(c.Dir, "lock.json")
	p := Package{Name: "x", Version: "1", SHA256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", Size: 1}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said := `[{"name":"x","version":"1","sha256":"` + p.SHA256 + `","size":1}]`
	if _, ok := c.locked(lock); ok {
		t.Error("nothing is believed")
	}
	write(lock, said)
	if _, ok := c.locked(lock); ok {
		t.Error("a list without its packages is believed")
	}
	write(c.File(p), "xx")
	if _, ok := c.locked(lock); ok {
		t.Error("a package of another size is believed")
	}
	write(c.File(p), "y")
	if packages, ok := c.locked(lock); !ok || len(packages) != 1 || packages[0] != p {
		t.Errorf("a whole cache gives %v %v", packages, ok)
	}
	if err := c.check(p); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged package: %v", err)
	}
	write(c.File(p), "x")
	if err := c.check(p); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "[]", "{", `[{"name":"x","sha256":"../../x"}]`} {
		write(lock, text)
		if _, ok := c.locked(lock); ok {
			t.Errorf("%q is believed", text)
		}
	}
}

// FuzzExtract makes an archive of lines "type mode name target"; the bytes of archives are the standard library's business.
func FuzzExtract(f *testing.F) {
	f.Add("0 4755 ./a/b \n2 777 ./bin/b ../../x\n")
	f.Add("2 777 ./a b\n5 1777 ./a/c \n1 644 ./hard ./a/c\n0 644 ./a/f \n1 644 ./hard ./b/f\n")
	f.Add("2 777 here .\n2 777 here/here/up ../..\n2 777 lib64 /usr/lib\n0 755 lib64/x \n3 600 dev/null \n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for line := range strings.Lines(text) {
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(fields) < 4 || len(fields[0]) != 1 {
				continue
			}
			mode, _ := strconv.ParseInt(fields[1], 8, 32)
			w.WriteHeader(&tar.Header{Typeflag: fields[0][0], Mode: mode, Name: fields[2], Linkname: fields[3]})
		}
		w.Close()
		tree := rootfs.Merged()
		if extract(tree, &b, all, spool(t), 1<<16) != nil {
			return
		}
		for name, node := range tree.All() {
			if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") || node.Mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 {
				t.Fatalf("%q with mode %v", name, node.Mode)
			}
		}
		if err := tree.WriteTar(&bytes.Buffer{}); err != nil {
			t.Fatalf("a tree that was taken cannot be written: %v", err)
		}
	})
}

func FuzzParseStanza(f *testing.F) {
	f.Add("Package: a\nVersion: 1\nSize: 3\nSHA256: 00\nDepends: b (>= 1) | c:any, d\n\nPackage: b\n")
	f.Add(" x\n")
	f.Fuzz(func(t *testing.T, text string) {
		stanzas, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range stanzas {
			for _, d := range s.dependencies() {
				for _, name := range d.names {
					if name == "" || strings.ContainsAny(name, ",|(:") {
						t.Fatalf("dependency %q", name)
					}
				}
			}
		}
	})
}
