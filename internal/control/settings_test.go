package control

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: \"accessLogFile: /dev/stdout\\nenableTracing: true\\ningressClass: x\"}\n"

func TestUnservedFieldsOfTheMeshConfigAreCounted(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	p.write("mesh.yaml", settings)
	eventually(t, "the fields are counted", func() bool { return p.control.compile.Settings().Unserved != nil })
	var metrics string
	p.debug("/metrics", &metrics)
	if !strings.Contains(metrics, "\nlateen_control_mesh_config_unserved_fields 2\n") {
		t.Errorf("%s", metrics)
	}
}

// A ConfigMap has no status on Kubernetes: what nobody goes by stands among the problems there.
func TestUnservedFieldsOfTheMeshConfigAreAmongTheProblemsOnKubernetes(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	p.write("mesh.yaml", settings)
	eventually(t, "the fields are read", func() bool { return p.control.compile.Settings().Unserved != nil })
	if problems := p.control.problems(); len(problems) > 0 {
		t.Errorf("the local engine tells its conditions twice: %v", problems)
	}
	key := p.control.opts.Mesh.ConfigKey()
	problems := settingsProblems(key, p.control.compile.Settings().Conditions)
	if len(problems) != 1 || problems[0].Object != "ConfigMap istio-system/istio" || problems[0].Severity != files.Warning || !strings.Contains(problems[0].Message, "no proxy of this mesh goes by enableTracing, ingressClass") {
		t.Errorf("%+v", problems)
	}
	if problems := settingsProblems(key, []model.Condition{{Type: "Accepted", Status: model.True, Reason: "Accepted"}}); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
}
