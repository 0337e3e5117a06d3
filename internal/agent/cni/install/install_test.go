package install

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/cni"
)

const patience = 15 * time.Second

func newNode(t *testing.T, files map[string]string) Node {
	t.Helper()
	dir := t.TempDir()
	n := Node{ConfDir: filepath.Join(dir, "net.d"), BinDir: filepath.Join(dir, "bin"), Plugin: filepath.Join(dir, "plugin"), Entry: entry}
	n.StateFile = filepath.Join(n.ConfDir, "lateen-cni.state")
	for _, d := range []string{n.ConfDir, n.BinDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, n.Plugin, "the plugin")
	for name, content := range files {
		write(t, filepath.Join(n.ConfDir, name), content)
	}
	return n
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// files are all of the node's, by name.
func (n Node) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{n.ConfDir, n.BinDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(dir)+"/"+e.Name()] = string(b)
		}
	}
	return all
}

func (n Node) install(t *testing.T, where string, changed bool) {
	t.Helper()
	got, did, err := n.Install()
	if err != nil || got != where || did != changed {
		t.Fatalf("installed into %q, changed %v, %v; want %q, %v", got, did, err, where, changed)
	}
}

func (n Node) chained(t *testing.T) []string {
	t.Helper()
	var names []string
	for name, content := range n.files(t) {
		if strings.HasPrefix(name, "net.d/") && !strings.HasSuffix(name, originalEnd) && strings.Contains(content, `"`+cni.Type+`"`) {
			names = append(names, strings.TrimPrefix(name, "net.d/"))
		}
	}
	slices.Sort(names)
	return names
}

func TestUninstallLeavesTheNodeAsItWas(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"list":   {"10-dc.conflist": ptpList, "20-other.conflist": ptpList, "README": "x"},
		"single": {"10-my.conf": single, "99-loopback.conf": `{"cniVersion":"0.3.1","type":"loopback"}`},
		"json":   {"05-my.json": single},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, files)
			before := n.files(t)
			where, _, err := n.Install()
			if err != nil {
				t.Fatal(err)
			}
			if got := n.chained(t); !slices.Equal(got, []string{where}) {
				t.Errorf("the entry is in %v, want %s", got, where)
			}
			names, _ := n.configurations()
			if names[0] != where {
				t.Errorf("the runtime uses %s, and the entry is in %s", names[0], where)
			}
			if i, err := os.Stat(filepath.Join(n.BinDir, cni.Type)); err != nil || i.Mode().Perm() != 0o755 {
				t.Errorf("the plugin: %v, %v", i, err)
			}
			n.install(t, where, false)
			if err := n.Uninstall(); err != nil {
				t.Fatal(err)
			}
			if after := n.files(t); !maps.Equal(before, after) {
				t.Errorf("before:\n%v\nafter:\n%v", before, after)
			}
		})
	}
}

// An uninstallation that is killed half-way and started again leaves what was there, and nothing else.
func TestUninstallCanBeRepeated(t *testing.T) {
	for _, name := range []string{"10-my.conf", "05-my.json"} {
		n := newNode(t, map[string]string{name: single})
		before := n.files(t)
		if _, _, err := n.Install(); err != nil {
			t.Fatal(err)
		}
		// The old name is back, and the new one is not away yet.
		path := filepath.Join(n.ConfDir, name)
		if err := os.Rename(path+originalEnd, path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := n.Uninstall(); err != nil {
				t.Fatal(err)
			}
			if after := n.files(t); !maps.Equal(before, after) {
				t.Errorf("before:\n%v\nafter:\n%v", before, after)
			}
		}
	}
}

// Whose network it is writes its configuration anew, or another network comes before it.
func TestInstallFollowsTheNodesNetwork(t *testing.T) {
	n := newNode(t, nil)
	if _, _, err := n.Install(); !errors.Is(err, ErrNoNetwork) {
		t.Fatalf("without a network: %v", err)
	}
	path := filepath.Join(n.ConfDir, "10-dc.conflist")
	write(t, path, ptpList)
	n.install(t, "10-dc.conflist", true)
	other := strings.Replace(ptpList, "1500", "9000", 1)
	write(t, path, other)
	n.install(t, "10-dc.conflist", true)
	write(t, filepath.Join(n.ConfDir, "00-broken.conflist"), "{")
	write(t, filepath.Join(n.ConfDir, "05-new.conf"), single)
	n.install(t, "05-new.conflist", true)
	if got := n.chained(t); !slices.Equal(got, []string{"05-new.conflist"}) {
		t.Errorf("the entry is in %v", got)
	}
	if got := n.files(t)["net.d/10-dc.conflist"]; got != other {
		t.Errorf("the network that is second now is not as it was: %s", got)
	}
	write(t, filepath.Join(n.BinDir, cni.Type), "older")
	n.install(t, "05-new.conflist", true)
	if got := n.files(t)["bin/"+cni.Type]; got != "the plugin" {
		t.Errorf("the plugin: %q", got)
	}
	// What somebody changed in the list meanwhile stays.
	list := n.files(t)["net.d/05-new.conflist"]
	write(t, filepath.Join(n.ConfDir, "05-new.conflist"), strings.Replace(list, "cni0", "cni7", 1))
	if err := n.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := n.files(t)["net.d/05-new.conflist"]; !strings.Contains(got, "cni7") || strings.Contains(got, cni.Type) {
		t.Errorf("after somebody changed it: %s", got)
	}
}

func TestAListOfSomebodyElseIsNotOverwritten(t *testing.T) {
	n := newNode(t, map[string]string{"10-a.conf": single, "10-a.conflist": ptpList})
	before := n.files(t)
	if _, _, err := n.Install(); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Fatalf("got %v", err)
	}
	after := n.files(t)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s changed", name)
		}
	}
}

// A configuration that the plugin cannot be called with would keep every pod of the node from starting.
func TestANetworkOfAnotherVersionIsNotTouched(t *testing.T) {
	n := newNode(t, map[string]string{"10-a.conf": `{"cniVersion":"0.2.0","name":"a","type":"bridge"}`})
	if _, _, err := n.Install(); err == nil || !strings.Contains(err.Error(), "cniVersion") {
		t.Fatalf("got %v", err)
	}
	if got := n.files(t)["net.d/10-a.conf"]; got != `{"cniVersion":"0.2.0","name":"a","type":"bridge"}` {
		t.Errorf("it is %s", got)
	}
}

func TestKeepRepairsAndNeverShowsHalfAFile(t *testing.T) {
	n := newNode(t, map[string]string{"10-dc.conflist": ptpList})
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var repairs int
	var all sync.WaitGroup
	all.Go(func() {
		n.Keep(ctx, slog.New(slog.DiscardHandler), func(err error, repaired bool) {
			mu.Lock()
			defer mu.Unlock()
			if repaired {
				repairs++
			}
		})
	})
	defer func() { cancel(); all.Wait() }()
	path := filepath.Join(n.ConfDir, "10-dc.conflist")
	chained := func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readList(b); err != nil {
			t.Fatalf("half a configuration: %q", b)
		}
		return strings.Contains(string(b), cni.Type)
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within %v", what, patience)
			}
		}
	}
	await("the entry is there", chained)
	for range 3 {
		// As careful network plugins do.
		if err := cni.WriteWhole(path, []byte(ptpList), 0o644); err != nil {
			t.Fatal(err)
		}
		await("the entry is back", chained)
	}
	await("the repairs are counted", func() bool { mu.Lock(); defer mu.Unlock(); return repairs > 0 })
}

// The plugin is long, and who looks at it every few seconds must not read all of it each time.
func TestAnInstalledPluginIsReadAgainOnlyIfSomethingChanged(t *testing.T) {
	n := newNode(t, map[string]string{"10-net.conflist": `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge"}]}`})
	n.copied = &twins{}
	long := strings.Repeat("0123456789abcdef", 10_000)
	write(t, n.Plugin, long)
	n.install(t, "10-net.conflist", true)
	n.install(t, "10-net.conflist", false)
	known := *n.copied
	if known == (twins{}) {
		t.Fatal("that they are alike is not noted")
	}
	n.install(t, "10-net.conflist", false)
	if *n.copied != known {
		t.Error("what has not changed is looked at anew")
	}
	target := filepath.Join(n.BinDir, cni.Type)
	for name, change := range map[string]func(){
		"the last byte":    func() { write(t, target, long[:len(long)-1]+"x") },
		"the first byte":   func() { write(t, target, "x"+long[1:]) },
		"a byte more":      func() { write(t, target, long+"x") },
		"a byte less":      func() { write(t, target, long[1:]) },
		"its mode":         func() { _ = os.Chmod(target, 0o644) },
		"its place":        func() { _ = os.Remove(target) },
		"the agent's copy": func() { long = strings.ToUpper(long); write(t, n.Plugin, long) },
	} {
		change()
		_, changed, err := n.Install()
		if err != nil || !changed {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		b, err := os.ReadFile(target)
		i, statErr := os.Stat(target)
		if err := errors.Join(err, statErr); err != nil || string(b) != long || i.Mode().Perm() != pluginMode {
			t.Errorf("%s: %d bytes are installed, %v", name, len(b), err)
		}
	}
	n.install(t, "10-net.conflist", false)
}

func TestChainsSaysWhoIsInAConfigurationThatIsUsed(t *testing.T) {
	n := newNode(t, map[string]string{"10-a.conflist": ptpList, "30-b.conf": single})
	for plugin, want := range map[string]bool{"portmap": true, "bridge": true, "istio-cni": false, "": false} {
		if got, err := n.Chains(plugin); err != nil || got != want {
			t.Errorf("%s: %t, %v", plugin, got, err)
		}
	}
	write(t, filepath.Join(n.ConfDir, "10-a.conflist.lateen-original"), `{"plugins":[{"type":"istio-cni"}]}`)
	if got, err := n.Chains("istio-cni"); err != nil || got {
		t.Errorf("in a file that no runtime reads: %t, %v", got, err)
	}
	n.ConfDir = filepath.Join(n.ConfDir, "nowhere")
	if got, err := n.Chains("istio-cni"); err == nil || got {
		t.Errorf("without the folder: %t, %v", got, err)
	}
}

// A configuration that is cut short or empty may be just being written: who is in it is not known.
func TestWhatMakesNoSenseDoesNotSayThatAPluginIsAbsent(t *testing.T) {
	for _, content := range []string{"", "{", `{"plugins":[{"type":"istio-cni"}`, `{"plugins":{}}`} {
		n := newNode(t, map[string]string{"10-a.conflist": content, "30-b.conf": single})
		if got, err := n.Chains("istio-cni"); got || err == nil || !strings.Contains(err.Error(), "10-a.conflist") {
			t.Errorf("%q: %t, %v", content, got, err)
		}
		if got, err := n.Chains("bridge"); !got || err != nil {
			t.Errorf("%q, and another has it: %t, %v", content, got, err)
		}
	}
}
