package translate

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
)

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
