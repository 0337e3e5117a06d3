package install

import (
	"encoding/json"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/agent/cni"
)

var entry = cni.Entry{
	Type: cni.Type, Socket: "/var/run/lateen/cni.sock", StateFile: "/etc/cni/net.d/lateen-cni.state",
	AccessFile: "/var/run/lateen/cni-access.json", MustStart: []string{"kube-system", "lateen-system"},
}

const (
	ptpList = `{"cniVersion":"1.0.0","name":"dc","disableCheck":true,"strange":{"b":[1,2.50],"a":12345678901234567890},"plugins":[
 {"type":"ptp","mtu":1500,"ipam":{"type":"host-local"}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}`
	single = `{"cniVersion": "0.3.1", "name": "mynet", "type": "bridge", "bridge": "cni0", "mtu": 9007199254740993}`
)

type parsed struct {
	CNIVersion string           `json:"cniVersion"`
	Name       string           `json:"name"`
	Plugins    []map[string]any `json:"plugins"`
}

func TestTheEntryComesLastAndTheRestStays(t *testing.T) {
	out, err := Chain([]byte(ptpList), entry)
	if err != nil {
		t.Fatal(err)
	}
	var p parsed
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Plugins) != 3 || p.Plugins[2]["type"] != cni.Type || p.Plugins[0]["type"] != "ptp" || p.Name != "dc" {
		t.Errorf("chained: %s", out)
	}
	for _, kept := range []string{"12345678901234567890", "2.50", `"disableCheck": true`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s is lost in %s", kept, out)
		}
	}
	if again, err := Chain(out, entry); err != nil || again != nil {
		t.Errorf("chained twice: %s, %v", again, err)
	}
	bare, err := Unchain(out)
	if err != nil || !Same(bare, []byte(ptpList)) {
		t.Errorf("unchained: %s, %v", bare, err)
	}
	if nothing, err := Unchain([]byte(ptpList)); nothing != nil || err != nil {
		t.Errorf("unchained what is not chained: %s, %v", nothing, err)
	}
}

func TestASinglePluginBecomesAList(t *testing.T) {
	out, err := Chain([]byte(single), entry)
	if err != nil {
		t.Fatal(err)
	}
	var p parsed
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	if p.CNIVersion != "0.3.1" || p.Name != "mynet" || len(p.Plugins) != 2 || p.Plugins[0]["bridge"] != "cni0" {
		t.Errorf("the list: %s", out)
	}
	if !strings.Contains(string(out), "9007199254740993") {
		t.Errorf("a number changed in %s", out)
	}
}

// An entry that is old, or not at the end any more, is put right.
func TestAnEntryThatIsNotAsItShouldBeIsReplaced(t *testing.T) {
	old := entry
	old.Socket = "/elsewhere"
	first, err := Chain([]byte(ptpList), old)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Chain(first, entry)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := Chain([]byte(ptpList), entry)
	if !Same(out, want) {
		t.Errorf("got %s", out)
	}
	moved := strings.Replace(string(want), `"plugins": [`, `"plugins": [{"type":"lateen-cni"},`, 1)
	if out, err = Chain([]byte(moved), entry); err != nil || !Same(out, want) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestWhatCannotBeChainedIsRefusedWithItsReason(t *testing.T) {
	for content, reason := range map[string]string{
		`[]`:                                     "no JSON object",
		`{`:                                      "no JSON object",
		`{"name":"x"}`:                           "neither plugins nor a type",
		`{"cniVersion":"1.0.0","plugins":[]}`:    "no plugin",
		`{"cniVersion":"1.0.0","plugins":{}}`:    "no list",
		`{"cniVersion":"1.0.0","plugins":[{}]}`:  "no type",
		`{"cniVersion":"0.2.0","type":"bridge"}`: "0.3.1",
		`{"type":"bridge"}`:                      "0.3.1",
		`{"cniVersion":"9.0.0","plugins":[{"type":"a"}]}`: "9.0.0",
	} {
		if out, err := Chain([]byte(content), entry); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %s, %v; want %q", content, out, err, reason)
		}
	}
}

// Whatever is chained can be unchained, and says then what it said.
func FuzzChain(f *testing.F) {
	for _, s := range []string{
		ptpList, single, `{"cniVersion":"1.1.0","cniVersions":["0.4.0","1.1.0"],"name":"a","plugins":[{"type":"x"}],"disableGC":true}`,
		`{"cniVersion":"0.4.0","name":"n","plugins":[{"type":"lateen-cni"},{"type":"y","z":1e400}]}`, `{"cniVersion":"1.0.0","type":"lateen-cni"}`, `{}`, `null`,
		`{"cniVersion":"1.0.0","plugins":[null,{"type":"a"}]}`, "{\"cniVersion\":\"1.0.0\",\"type\":\"\xff\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		out, err := Chain(content, entry)
		if err != nil || out == nil {
			if _, err := Unchain(content); err != nil && out != nil {
				t.Errorf("chained and cannot be unchained: %v", err)
			}
			return
		}
		if again, err := Chain(out, entry); err != nil || again != nil {
			t.Fatalf("%s became %s, and that %s, %v", content, out, again, err)
		}
		bare, err := Unchain(out)
		if err != nil || bare == nil {
			t.Fatalf("%s became %s, which cannot be unchained: %v", content, out, err)
		}
		list, err := readList(content)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.plugins {
			if !isOurs(p) && !strings.Contains(squeeze(t, bare), squeeze(t, p)) {
				t.Errorf("plugin %s of %s is lost in %s", p, content, bare)
			}
		}
	})
}

// squeeze is JSON without white space.
func squeeze(t *testing.T, j []byte) string {
	t.Helper()
	b, err := json.Marshal(json.RawMessage(j))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
