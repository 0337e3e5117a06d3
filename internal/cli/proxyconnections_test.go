package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

// clients is a waypoint's page, as Lateen's own waypoint wrote it.
const clients = `{"connections":[
	{"direction":"inbound","source":{"address":"10.244.1.2:40112","workload":"client-5m78mjbsbn-7x4wn","namespace":"shop","identity":"spiffe://cluster.local/ns/shop/sa/client"},
		"destination":{"address":"10.96.0.7:9080"},"service":"reviews.shop.svc.cluster.local","protocol":"HTTP/2","requests":3,"tunnelled":true,"state":"open","seconds":65.5,"bytes":{"clientToServer":2048,"serverToClient":70}},
	{"direction":"inbound","source":{"address":"10.244.1.3:40113","identity":"spiffe://cluster.local/ns/shop/sa/other"},
		"destination":{"address":"10.244.2.9:9080","workload":"store-1","namespace":"shop"},"protocol":"TCP","tunnelled":true,"state":"open","seconds":2,"bytes":{"clientToServer":1,"serverToClient":2}}],
	"truncated":true}`

func waypointed(t *testing.T) *fakeEngine {
	t.Helper()
	f := proxied(t)
	f.clients = clients
	f.objects = append(f.objects, api.Object{Key: api.Key{Kind: "Pod", Namespace: "shop", Name: "waypoint-1"}})
	return f
}

func TestAWaypointListsTheConnectionsOfItsClients(t *testing.T) {
	for _, target := range []string{"waypoint-1", "pod/waypoint-1"} {
		f := waypointed(t)
		r := f.run("", "proxy", "config", "connections", target, "-n", "shop")
		if r.code != ExitOK || !strings.Contains(r.stderr, "has more connections than the 2 that it lists") {
			t.Errorf("%s: %+v", target, r)
		}
		var rows [][]string
		for line := range strings.Lines(r.stdout) {
			rows = append(rows, strings.Fields(line))
		}
		want := [][]string{
			{"SOURCE", "SERVICE", "PROTOCOL", "REQUESTS", "TO-SERVER", "TO-CLIENT", "AGE"},
			{"shop/client-5m78mjbsbn-7x4wn", "reviews.shop.svc.cluster.local", "HTTP/2", "3", "2.0", "KiB", "70", "B", "65s"},
			{"10.244.1.3:40113", "shop/store-1", "TCP", "-", "1", "B", "2", "B", "2s"},
		}
		if !slices.EqualFunc(rows, want, slices.Equal) {
			t.Errorf("%s: %q", target, rows)
		}
	}
	r := waypointed(t).run("", "proxy", "config", "connections", "pod/waypoint-1", "-n", "shop", "-o", "wide")
	for _, part := range []string{"spiffe://cluster.local/ns/shop/sa/other", "10.96.0.7:9080", "10.244.1.2:40112"} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("no %s in %s", part, r.stdout)
		}
	}
}

func TestAWaypointsConnectionsInJSONAreThoseOfItsPage(t *testing.T) {
	r := waypointed(t).run("", "proxy", "config", "connections", "waypoint-1", "-n", "shop", "-o", "json")
	var answer struct {
		Pod, Namespace string
		Connections    []map[string]any
		Truncated      bool
	}
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	if answer.Pod != "waypoint-1" || answer.Namespace != "shop" || !answer.Truncated || len(answer.Connections) != 2 {
		t.Errorf("%+v", answer)
	}
	if c := answer.Connections[0]; c["requests"] != 3.0 || c["protocol"] != "HTTP/2" || c["node"] != nil {
		t.Errorf("%v", c)
	}
	if c := answer.Connections[1]; c["requests"] != nil {
		t.Errorf("nobody reads its requests: %v", c)
	}
}

func TestANameThatIsNeitherANodesNorAPodsIsReportedAsANodes(t *testing.T) {
	r := waypointed(t).run("", "proxy", "config", "connections", "n9", "-n", "shop")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "there is no node n9") {
		t.Errorf("%+v", r)
	}
	r = waypointed(t).run("", "proxy", "config", "connections", "svc/reviews")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "pod/NAME of a waypoint") {
		t.Errorf("%+v", r)
	}
	f := waypointed(t)
	f.clients = `{"connections":[],"truncated":false}`
	if r := f.run("", "proxy", "config", "connections", "pod/waypoint-1", "-n", "shop"); r.code != ExitOK || r.stdout != "" || !strings.Contains(r.stderr, "has no connections") {
		t.Errorf("%+v", r)
	}
}
