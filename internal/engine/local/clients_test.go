package local

import (
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestRefusalsSpeakOfPoliciesAsTheirAuthorsDo(t *testing.T) {
	_, clients, err := readClients([]byte(`{"generation": 3, "clients": [{"node": "n1", "types": [{"type": "Authorization",
		"refused": [{"message": "shop/a~0a1b2c3d: no scope 9", "names": ["shop/a~0a1b2c3d"]}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var refused api.Refusal = clients[0].Types[0].Refused[0]
	if refused.Message != "shop/a: no scope 9" || refused.Names[0] != "shop/a" {
		t.Errorf("the refusal is shown as %+v", refused)
	}
}
