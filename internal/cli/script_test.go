package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"lateen.dev/lateen/internal/engine/api"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"lateen": func() { os.Exit(scripted(os.Args[1:])) },
	})
}

// scripted is the command as a process of its own, on a machine without any mesh.
func scripted(args []string) int {
	env := processEnv(nil)
	env.System = noMachine{}
	env.Connect = func(mesh string) *api.Client { return api.NewAt(mesh, "no-such.sock") }
	return Run(context.Background(), env, args)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// exitcode N ARGUMENT...: the command line ends with that code.
			"exitcode": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				err = ts.Exec("lateen", args[1:]...)
				got := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if got != want {
					ts.Fatalf("lateen %v: exit code %d, want %d", args[1:], got, want)
				}
			},
		},
	})
}
