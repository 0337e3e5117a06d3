package compile

import (
	"fmt"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// listeners are the conditions of an object's listeners in words.
func (p *plane) listeners(key model.Key) (text string) {
	e, _ := p.store.Entry(key)
	for _, l := range e.Listeners() {
		text += l.Name + ":"
		for _, c := range l.Conditions {
			text += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
		}
		text += "; "
	}
	return text
}

func TestAGatewaysListenersAreToldOneByOne(t *testing.T) {
	p := newPlane(t)
	p.put("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, namespace: shop}\nspec: {gatewayClassName: lateen-waypoint, listeners: [{name: mesh, protocol: HBONE, port: 15008}, {name: web, protocol: HTTP, port: 80}]}\n")
	e, ok := p.store.Entry(model.GatewayKey("shop", "wp"))
	if !ok || len(e.Listeners()) != 2 || len(e.Conditions) == 0 {
		t.Fatalf("%+v", e)
	}
	for i, want := range []struct {
		name   string
		status model.Status
	}{{"mesh", model.True}, {"web", model.False}} {
		l := e.Listeners()[i]
		if c := l.Conditions[0]; l.Name != want.name || c.Type != "Accepted" || c.Status != want.status || c.Generation != e.Generation {
			t.Errorf("listener %d is told %+v", i, l)
		}
	}
}
