package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

// nameVariable is the environment variable that stands in for --name.
const nameVariable = "LATEEN_NAME"

// The meshes that a command of the lab starts and ends have names that begin with one of these.
const (
	labPrefix  = "lab-"
	cardPrefix = "card-"
)

// labMeshes are the prefixes of such names, each with the plural and the singular of the runs that the meshes belong to.
var labMeshes = []struct{ prefix, runs, run string }{
	{labPrefix, "lab runs", "a lab run"},
	{cardPrefix, "scorecards of the lab", "a scorecard of the lab"},
}

// labMesh finds the prefix in the name of a mesh that a command of the lab starts and ends. The singular and the plural say which runs
// have it. All three are empty for any other mesh.
func labMesh(name string) (prefix, runs, run string) {
	for _, m := range labMeshes {
		if strings.HasPrefix(name, m.prefix) {
			return m.prefix, m.runs, m.run
		}
	}
	return "", "", ""
}

func isLabMesh(name string) bool {
	prefix, _, _ := labMesh(name)
	return prefix != ""
}

// answerPatience bounds how long the search for running meshes waits for one socket. A local connect takes microseconds.
const answerPatience = time.Second

// meshChoice is the mesh of this machine that a command is about. It is made once, when a command first needs it.
type meshChoice struct {
	once sync.Once
	// named reports that the user named the mesh, by --name or LATEEN_NAME.
	named bool
	// byFlag reports that --name named it.
	byFlag bool
	err    error

	look    sync.Once
	further bool
}

// others reports whether further meshes run, so that a command without a name would not find this one. It looks once: a page may hold
// hundreds of suggestions.
func (c *meshChoice) others(a *app) bool {
	c.look.Do(func() {
		c.further = slices.ContainsFunc(a.running(), func(m string) bool { return m != a.mesh })
	})
	return c.further
}

// choose sets a.mesh. The order is: --name, LATEEN_NAME, the only running mesh, "default". It fails if several meshes run and none is
// named, and if the only one belongs to a lab run or a scorecard: such a mesh ends by itself, and no command should reach it by accident.
func (a *app) choose() error {
	a.chosen.once.Do(func() {
		a.chosen.byFlag = a.mesh != ""
		if !a.chosen.byFlag && a.Getenv != nil {
			if a.mesh = a.Getenv("LATEEN_NAME"); a.mesh != "" && !meshName.MatchString(a.mesh) {
				a.chosen.err = usagef("%s is %q; use the name of a mesh: up to 32 lower-case letters, digits and dashes", nameVariable, a.mesh)
			}
		}
		if a.chosen.named = a.mesh != ""; a.chosen.named {
			return
		}
		a.mesh = api.DefaultMesh
		if choice, err := a.choice(); err != nil || choice == engineKubernetes {
			return // the choice of the engine reports its error when somebody asks the mesh
		}
		switch running := a.running(); {
		case len(running) > 1:
			a.chosen.err = severalMeshes(running)
		case len(running) == 1 && isLabMesh(running[0]):
			_, _, run := labMesh(running[0])
			a.chosen.err = usageError{&api.Error{Message: fmt.Sprintf("no mesh is named, and the only one that runs, %s, belongs to %s", running[0], run),
				Fix: fmt.Sprintf("name it if you mean it: --name %s or %s=%s; `lateen up` starts one of your own", running[0], nameVariable, running[0])}}
		case len(running) == 1:
			a.mesh = running[0]
		}
	})
	return a.chosen.err
}

// chooseForUp sets a.mesh for a command that starts a mesh: what runs already does not matter.
func (a *app) chooseForUp() error {
	err := a.choose()
	if !a.chosen.named {
		a.mesh, a.chosen.err = api.DefaultMesh, nil
		return nil
	}
	return err
}

// chooseForDown sets a.mesh for the command that ends a mesh. It fails if the flags or the environment mean a cluster. Without a name it also
// fails if files of another mesh are beside the one that runs: the user may mean the mesh that crashed.
func (a *app) chooseForDown() error {
	choice, err := a.choice()
	if err != nil {
		return err
	}
	if choice == engineKubernetes {
		return usageError{&api.Error{Message: "down ends a mesh of this machine, and LATEEN_ENGINE, --context or --kubeconfig choose a cluster",
			Fix: "`lateen uninstall" + (installCommands{a}).clusterFlags() + "` removes the mesh of the cluster; leave the choice out to end a mesh of this machine"}}
	}
	if err := a.choose(); err != nil || a.chosen.named || a.Meshes == nil {
		return err
	}
	var others []string
	for _, mesh := range slices.Sorted(slices.Values(a.Meshes())) {
		if mesh != a.mesh {
			others = append(others, mesh)
		}
	}
	if len(others) > 0 && len(a.running()) > 0 {
		return usageError{&api.Error{Message: fmt.Sprintf("no mesh is named; mesh %s runs, and files of others are left: %s", a.mesh, someMeshes(others)),
			Fix: fmt.Sprintf("name the one you mean: `lateen down --name %s` removes what is left of it, `lateen down --name %s` ends the one that runs", others[0], a.mesh)}}
	}
	return nil
}

func severalMeshes(running []string) error {
	first := running[0]
	if i := slices.IndexFunc(running, func(m string) bool { return !isLabMesh(m) }); i >= 0 {
		first = running[i]
	}
	return usageError{&api.Error{Message: fmt.Sprintf("no mesh is named, and %d run: %s", len(running), someMeshes(running)),
		Fix: fmt.Sprintf("name one: --name %s, or export %s=%s for all commands of this shell; lateen list shows them", first, nameVariable, first)}}
}

// maxNamedMeshes bounds how many meshes an error names.
const maxNamedMeshes = 6

func someMeshes(names []string) string {
	if more := len(names) - maxNamedMeshes; more > 0 {
		names = append(names[:maxNamedMeshes:maxNamedMeshes], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// running lists the meshes of this machine whose engine answers, in the order of their names. An engine that answers root alone counts.
func (a *app) running() []string {
	if a.Meshes == nil {
		return nil
	}
	var running []string
	for _, mesh := range a.Meshes() {
		if a.answers(mesh) {
			running = append(running, mesh)
		}
	}
	slices.Sort(running)
	return running
}

func (a *app) answers(mesh string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	conn, err := a.Connect(mesh).Dial(ctx)
	if err == nil {
		_ = conn.Close()
	}
	return !errors.Is(err, api.ErrNotRunning)
}

// notRunning is the error of a command about a mesh that has no engine. It wraps api.ErrNotRunning.
type notRunning struct {
	mesh    string
	running []string // other meshes of this machine
	named   bool     // by the user
}

func (e *notRunning) Unwrap() error { return api.ErrNotRunning }

func (e *notRunning) Error() string {
	what, fix := e.parts()
	return what + "; " + fix
}

func (e *notRunning) parts() (what, fix string) {
	what = fmt.Sprintf("mesh %s is not running", e.mesh)
	start := "`lateen up`"
	if e.named {
		start = "`lateen up --name " + e.mesh + "`"
	}
	if len(e.running) == 0 {
		return what, "start it with " + start
	}
	return what + "; running: " + someMeshes(e.running),
		fmt.Sprintf("name one that runs, as in lateen --name %s, or start this one with %s", e.running[0], start)
}

// explained adds to the error of a connection to a mesh of this machine which meshes do run.
func (a *app) explained(err error) error {
	if !errors.Is(err, api.ErrNotRunning) {
		return err
	}
	return &notRunning{mesh: a.mesh, running: a.running(), named: a.chosen.named}
}

// meshFlagValue is the value of --name. It refuses an empty name, which a script gets from a variable that is not set.
type meshFlagValue string

// String implements pflag.Value.
func (v *meshFlagValue) String() string { return string(*v) }

// Type implements pflag.Value.
func (v *meshFlagValue) Type() string { return "string" }

// Set implements pflag.Value.
func (v *meshFlagValue) Set(name string) error {
	if name == "" {
		return errors.New("it is empty; write the name of a mesh, or leave --name out")
	}
	*v = meshFlagValue(name)
	return nil
}

func (a *app) nameFlag(root *cobra.Command) {
	root.PersistentFlags().Var((*meshFlagValue)(&a.mesh), "name", "mesh of this machine (default: $"+nameVariable+", or the only running one)")
	register(root, "name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.Meshes(), cobra.ShellCompDirectiveNoFileComp
	})
}
