package cli

import (
	"testing"

	"lateen.dev/lateen/internal/install"
)

func TestTheResultOfAnInstallationSaysWhatWasThereAndWhatStaysNewer(t *testing.T) {
	for _, x := range []struct {
		plan install.Plan
		want string
	}{
		{install.Plan{}, ""},
		{install.Plan{From: "0.9.0"}, ", in the place of 0.9.0"},
		{install.Plan{From: "9.9.9", NewerDefinitions: []string{"a.example"}}, ", in the place of 9.9.9, with a newer definition of a.example"},
		{install.Plan{From: "9.9.9", NewerDefinitions: []string{"a.example", "b.example"}}, ", in the place of 9.9.9, with 2 definitions of a newer version"},
	} {
		if got := inPlaceOf(x.plan); got != x.want {
			t.Errorf("%+v: %q", x.plan, got)
		}
	}
}
