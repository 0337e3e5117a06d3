package printer

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestStatusSaysWhatAProxyRefusesAndMayRefuse(t *testing.T) {
	many := strings.Split(strings.Repeat("shop/x ", 30), " ")[:30]
	for want, r := range map[string]api.Refusal{
		"no (shop/a, shop/b)":                                    {Message: "no", Names: []string{"shop/a", "shop/b"}},
		"no (shop/a; it may mean 3 others, too)":                 {Message: "no", Names: []string{"shop/a"}, Others: 3},
		"no (it names nothing; there were 4)":                    {Message: "no", Others: 4},
		"no (" + strings.Repeat("shop/x, ", 20) + "and 10 more)": {Message: "no", Names: many},
	} {
		s := api.Status{Control: api.ControlState{Clients: []api.ClientState{{Node: "n1", Types: []api.TypeState{{Type: "Address", Refused: []api.Refusal{r}}}}}}}
		if got := findings(s); len(got) != 1 || got[0] != "node n1 refuses part of its Address: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
