package xds

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// TestARestartOfTheControlPlaneCostsAnUnchangedMeshNothing reconnects a client that holds 1000 workloads to another life of the control plane.
func TestARestartOfTheControlPlaneCostsAnUnchangedMeshNothing(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: shop, labels: {app: a%d}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {podIP: 10.0.%d.%d}\n---\n", i, i%20, i/250, i%250+1)
	}
	for i := range 20 {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 10.96.0.%d, selector: {app: a%d}, ports: [{port: 80}]}\n---\n", i, i+1, i)
		fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e%d, namespace: shop}\nspec: {hosts: [e%d.example.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}\n---\n", i, i)
	}
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: %s}}, rules: [{}]}\n---\n"
	first := text.String() + fmt.Sprintf(policy, "a1")
	edited := fmt.Sprintf(policy, "a2")
	file := filepath.Join(t.TempDir(), "assignments.json")
	mesh := translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}
	live := func(texts ...string) *resourcelog.Log {
		t.Helper()
		assignments, err := compile.LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		l := resourcelog.New(time.Now, resourcekind.Mesh)
		compiler := compile.New(mesh, model.NewStore(), l, assignments, slog.New(slog.DiscardHandler), nil)
		for _, text := range texts {
			objects, problems := files.Decode("test", []byte(text))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var changes []model.Change
			for _, o := range objects {
				changes = append(changes, model.Change{Key: o.Key, Object: &o})
			}
			compiler.Apply(changes)
		}
		return l
	}
	w := newWorld(t)
	w.log = live(first, edited) // the policy has another name by now
	c := w.connect(DefaultLimits)
	c.follow(resourcekind.Authorization)
	c.follow(resourcekind.Address)
	c.settle()
	if n := len(c.state[resourcekind.Address]); n < 1040 {
		t.Fatalf("the client has %d resources", n)
	}
	reconnect := func(l *resourcelog.Log) (bytes, resources, removed int) {
		t.Helper()
		w.log = l
		c.reconnect(DefaultLimits)
		c.follow(resourcekind.Authorization)
		c.follow(resourcekind.Address)
		for {
			r := c.session.Next(w.now)
			if r == nil {
				break
			}
			bytes, resources, removed = bytes+r.Frame().Len(), resources+len(r.Resources), removed+len(r.Removed)
			msg, err := r.Message()
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range msg.Resources {
				c.state[msg.TypeUrl][res.Name] = res
			}
			for _, name := range msg.RemovedResources {
				delete(c.state[msg.TypeUrl], name)
			}
			c.pending[msg.TypeUrl] = msg
			c.answer(msg.TypeUrl, "")
		}
		c.checkEqual()
		return bytes, resources, removed
	}
	unchanged := strings.Replace(first, fmt.Sprintf(policy, "a1"), edited, 1)
	if bytes, resources, removed := reconnect(live(unchanged)); bytes > 300 || resources+removed > 0 {
		t.Errorf("an unchanged mesh costs %d bytes, %d resources, %d removals", bytes, resources, removed)
	}
	// One pod less and one changed: just that is told.
	smaller := strings.Replace(strings.Replace(unchanged, "kind: Pod\nmetadata: {name: p7,", "kind: Pod\nmetadata: {name: q7,", 1), "podIP: 10.0.0.9}", "podIP: 10.9.9.9}", 1)
	if _, resources, removed := reconnect(live(smaller)); resources != 2 || removed != 1 {
		t.Errorf("%d resources and %d removals, want one pod changed, one come and one gone", resources, removed)
	}
}
