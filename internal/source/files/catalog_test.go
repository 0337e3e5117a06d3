package files

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

func service(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %q, ports: [{port: 80}]}\n---\n", name, ip)
}

func (c *catalog) write(file, text string) []model.Change {
	objects, problems := Decode(file, []byte(text))
	return c.set(file, objects, problems, false)
}

func describeChanges(changes []model.Change) string {
	var out []string
	for _, c := range changes {
		switch {
		case c.Object == nil:
			out = append(out, "-"+c.Key.Name)
		default:
			out = append(out, "+"+c.Key.Name+"@"+c.Object.File)
		}
	}
	return strings.Join(out, " ")
}

func (c *catalog) expect(t *testing.T, changes []model.Change, want string, problems ...string) {
	t.Helper()
	if got := describeChanges(changes); got != want {
		t.Errorf("changes %q, want %q", got, want)
	}
	var got []string
	for _, p := range c.problems() {
		got = append(got, p.Error())
	}
	if len(got) != len(problems) {
		t.Errorf("problems %q, want %q", got, problems)
		return
	}
	for i, p := range problems {
		if !strings.Contains(got[i], p) {
			t.Errorf("problem %q, want %q", got[i], p)
		}
	}
}

func TestABadEditKeepsTheLastGoodVersion(t *testing.T) {
	c := newCatalog()
	c.expect(t, c.write("f", service("a", "None")+service("b", "None")), "+a@f +b@f")
	bad := strings.Replace(service("a", "None"), "port: 80", "prt: 80", 1)
	c.expect(t, c.write("f", bad+service("b", "None")), "", "Service default/a")
	if c.live[model.ServiceKey("default", "a")] == nil {
		t.Error("the last good version is gone")
	}
	// A document that cannot be read at all may have been any of the file's objects.
	c.expect(t, c.write("f", "a: [\n---\n"+service("b", "None")), "+b@f", "correct the YAML") // b moved to another line
	if c.live[model.ServiceKey("default", "a")] == nil {
		t.Error("the last good version is gone")
	}
	c.expect(t, c.write("f", service("b", "None")), "-a +b@f")
	c.expect(t, c.remove("f"), "-b")
}

func TestOfTwoObjectsWithOneKeyTheFirstStays(t *testing.T) {
	c := newCatalog()
	c.expect(t, c.write("f2", service("a", "None")), "+a@f2")
	c.expect(t, c.write("f1", service("a", "10.0.0.1")), "", "f1:1: Service default/a: is already defined at f2:1")
	c.expect(t, c.write("f2", service("a", "10.0.0.2")), "+a@f2", "f1:1: Service default/a: is already defined at f2:1")
	c.expect(t, c.remove("f2"), "+a@f1")
}

func TestOfTwoServicesWithOneAddressTheFirstStays(t *testing.T) {
	c := newCatalog()
	c.expect(t, c.write("f1", service("a", "10.0.0.1")), "+a@f1")
	c.expect(t, c.write("f2", service("b", "10.0.0.1")), "",
		"f2:1: Service default/b: spec.clusterIP: address 10.0.0.1 already belongs to Service default/a (f1:1); choose another address")
	// A live service that asks for a taken address keeps what it had.
	c.expect(t, c.write("f3", service("c", "10.0.0.3")), "+c@f3", "default/b")
	c.expect(t, c.write("f3", service("c", "10.0.0.1")), "", "default/b", "f3:1: Service default/c: spec.clusterIP: address 10.0.0.1 already belongs")
	if o := c.live[model.ServiceKey("default", "c")]; o == nil || serviceAddresses(o)[0] != netip.MustParseAddr("10.0.0.3") {
		t.Errorf("c is %v", o)
	}
	// When the address is given up, the next in line gets it.
	c.expect(t, c.remove("f1"), "-a +b@f2", "f3:1: Service default/c")
	c.expect(t, c.write("f2", service("b", "10.0.0.2")), "+b@f2 +c@f3")
}

func TestServicesMaySwapAddressesWithinAFile(t *testing.T) {
	c := newCatalog()
	c.write("f", service("a", "10.0.0.1")+service("b", "10.0.0.2"))
	c.write("f", service("a", "10.0.0.2")+service("b", "10.0.0.1"))
	for name, want := range map[string]string{"a": "10.0.0.2", "b": "10.0.0.1"} {
		if got := serviceAddresses(c.live[model.ServiceKey("default", name)])[0].String(); got != want {
			t.Errorf("%s has %s, want %s: %v", name, got, want, c.problems())
		}
	}
}

// TestCatalogKeepsItsPromisesOverRandomEdits checks after each edit: the live objects are those that changes told of; no
// two services share an address; every object of every file is live or explained; only damage keeps what no file says.
func TestCatalogKeepsItsPromisesOverRandomEdits(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		c := newCatalog()
		told := map[model.Key]*Object{}
		for step := range 150 {
			file := fmt.Sprint("f", rng.IntN(4))
			var changes []model.Change
			if rng.IntN(5) == 0 {
				changes = c.remove(file)
			} else {
				text := ""
				for range rng.IntN(4) {
					text += service(fmt.Sprint("s", rng.IntN(5)), fmt.Sprint("10.0.0.", rng.IntN(4)))
				}
				if rng.IntN(6) == 0 {
					text += "a: [\n"
				}
				changes = c.write(file, text)
			}
			for _, ch := range changes {
				if ch.Object == nil {
					if told[ch.Key] == nil {
						t.Fatalf("seed %d step %d: removal of %s, which was never there", seed, step, ch.Key)
					}
					delete(told, ch.Key)
				} else {
					told[ch.Key] = ch.Object
				}
			}
			if len(told) != len(c.live) {
				t.Fatalf("seed %d step %d: told of %d objects, %d are live", seed, step, len(told), len(c.live))
			}
			owners := map[netip.Addr]model.Key{}
			for key, o := range c.live {
				if !same(told[key], o) {
					t.Fatalf("seed %d step %d: told %v of %s, live is %v", seed, step, told[key], key, o)
				}
				for _, a := range serviceAddresses(o) {
					if other, taken := owners[a]; taken {
						t.Fatalf("seed %d step %d: %s and %s share %s", seed, step, key, other, a)
					}
					owners[a] = key
				}
			}
			for key, claims := range c.claims {
				if explained := len(c.conflicts[key]); c.live[key] == nil && explained == 0 || explained < len(claims)-1 {
					t.Fatalf("seed %d step %d: %s has %d claims, live %v, explained %v", seed, step, key, len(claims), c.live[key], c.conflicts[key])
				}
				if len(claims) == 0 {
					t.Fatalf("seed %d step %d: %s is claimed by nobody", seed, step, key)
				}
			}
		}
	}
}
