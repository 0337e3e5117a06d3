package translate

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

func TestAnEntrySaysWhetherItsAddressesAreTakenOneAtATime(t *testing.T) {
	for resolution, want := range map[string]bool{"DNS": false, "DNS_ROUND_ROBIN": true, "STATIC": false, "NONE": false} {
		entry := object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], resolution: "+resolution+"}")
		services, conditions := ServiceEntry(mesh, EntryInput{Entry: entry})
		if len(services) != 1 {
			t.Fatalf("%v, %v", services, conditions)
		}
		got := slices.ContainsFunc(services[0].Extensions, func(e *workload.Extension) bool { return e.Name == "lateen.dns-round-robin" })
		if got != want {
			t.Errorf("%s: %v", resolution, services[0].Extensions)
		}
	}
}

// A waypoint knows by the wildcard that the client names the host.
func TestTheEndpointOfADynamicEntryIsItsWildcard(t *testing.T) {
	entry := object[networkingv1.ServiceEntry](t, "metadata: {name: wild, namespace: shop}\nspec: {hosts: [\"*.example.com\"], resolution: DYNAMIC_DNS, ports: [{number: 80, name: http, protocol: HTTP}]}")
	endpoints := Endpoints(mesh, entry, EntryHosts(entry), WorkloadInput{})
	if len(endpoints) != 1 || endpoints[0].Hostname != "*.example.com" || len(endpoints[0].Addresses) > 0 {
		t.Errorf("%v", endpoints)
	}
}

func TestAnEntrySaysHowOldItIs(t *testing.T) {
	for text, want := range map[string]time.Time{
		"metadata: {name: api, namespace: shop, creationTimestamp: 2026-01-02T00:00:00Z}\nspec: {hosts: [api.example.com], resolution: NONE}": time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], resolution: NONE}":                                          time.Unix(0, 0),
	} {
		services, conditions := ServiceEntry(mesh, EntryInput{Entry: object[networkingv1.ServiceEntry](t, text)})
		if len(services) != 1 || len(services[0].Extensions) != 1 {
			t.Fatalf("%v, %v", services, conditions)
		}
		extension := services[0].Extensions[0]
		created := &timestamppb.Timestamp{}
		if err := extension.Config.UnmarshalTo(created); err != nil || extension.Name != "lateen.entry-created" || !created.AsTime().Equal(want) {
			t.Errorf("%v: %v", extension, err)
		}
	}
}
