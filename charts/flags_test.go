package charts_test

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/agent"
	"lateen.dev/lateen/internal/control"
	"lateen.dev/lateen/internal/deployer"
)

// A program refuses a flag that it does not know, which would show on a cluster only.
func TestTheProgramsKnowTheirFlags(t *testing.T) {
	deployed := deployer.Command()
	control, agentFlags := control.Command().Flags(), func(name string) bool { f, _ := agent.Reference(); return f.Lookup(name) != nil }
	for _, c := range []struct {
		kind, name string
		knows      func(string) bool
	}{
		{"Deployment", "lateen-control", func(name string) bool { return control.Lookup(name) != nil }},
		{"Deployment", "lateen-deployer", func(name string) bool { return deployed.Flags().Lookup(name) != nil }},
		{"DaemonSet", "lateen-agent", agentFlags},
	} {
		args := arguments(t, everything, c.kind, c.name)
		if len(args) < 5 {
			t.Errorf("%s has %v only", c.name, args)
		}
		if c.name == "lateen-deployer" {
			if args[0] != deployed.Name() {
				t.Errorf("%s begins with %s", c.name, args[0])
			}
			args = args[1:]
		}
		for _, arg := range args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !strings.HasPrefix(arg, "--") || !c.knows(name) {
				t.Errorf("%s does not know %s", c.name, arg)
			}
		}
	}
}
