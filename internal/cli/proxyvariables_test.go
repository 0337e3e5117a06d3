package cli

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
)

func TestAMistypedVariableOfTheProxyIsRefused(t *testing.T) {
	const idle = "--proxy-env: no node proxy reads LATEEN_IDLE_TIMOUT\n  fix: did you mean LATEEN_IDLE_TIMEOUT?\n"
	for line, want := range map[string]string{
		"up --proxy-env LATEEN_IDLE_TIMOUT=1h":                         idle,
		"up --proxy-env lateen_idle_timeout=1h":                        "no node proxy reads lateen_idle_timeout\n  fix: did you mean LATEEN_IDLE_TIMEOUT?\n",
		"up --proxy-env LATEEN_ENGINE=local":                           "no node proxy reads LATEEN_ENGINE\n  fix: `lateen-proxy node --reference json` lists the variables that it reads\n",
		"check --proxy-env LATEEN_ACCELERATR=splice":                   "no node proxy reads LATEEN_ACCELERATR\n  fix: did you mean LATEEN_ACCELERATOR?\n",
		"lab run twopods-qps --proxy-env lateen:LATEEN_IDLE_TIMOUT=1h": idle,
	} {
		f := newFake(t)
		if r := f.run("", strings.Fields(line)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || len(f.started) != 0 {
			t.Errorf("%s: got %+v, want %q", line, r, want)
		}
	}
}

func TestOtherVariablesOfTheProxyAreFree(t *testing.T) {
	for _, line := range []string{
		"up --proxy-env LATEEN_IDLE_TIMEOUT=1h --proxy-env RUST_LOG=debug",
		"up --node-proxy n2=/opt/ztunnel --proxy-env ZTUNNEL_OWN_SETTING=1",
		"up --node-proxy n2=/opt/lateen-proxy --proxy-env LATEEN_OF_THE_FUTURE=1",
	} {
		f := newFake(t)
		if r := f.run("", strings.Fields(line)...); r.code != 0 || len(f.started) != 1 {
			t.Errorf("%s: got %+v", line, r)
		}
	}
}

// Another build may read variables that this one does not know.
func TestAnotherBuildOfTheProxyMayReadOtherVariables(t *testing.T) {
	planes := []dataplanes.Spec{{Name: "before", Kind: results.KindLateen, Path: "/opt/lateen-proxy"}}
	if err := setProxyEnv(planes, "before:LATEEN_OF_THE_FUTURE=1"); err != nil {
		t.Error(err)
	}
	planes[0].Kind, planes[0].Path = results.KindEnvoyWaypoint, "/opt/envoy"
	if err := setProxyEnv(planes, "before:LATEEN_OF_THE_FUTURE=1"); err == nil {
		t.Error("the node proxies beside an Envoy are those of this build, and were given a variable that they do not read")
	}
}
