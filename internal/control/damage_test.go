package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDamagedAssignmentsAreToldAndStopNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ca"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca", assignmentsFile), []byte(`{"addresses": `), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, dir)
	p.write("engine.yaml", base)
	x := p.proxy()
	eventually(t, "a proxy is served", func() bool { return x.knows(webUID) })
	var problems, ready string
	p.debug("/debug/problems", &problems)
	p.debug("/ready", &ready)
	if !strings.Contains(problems, assignmentsFile+".damaged-") || !strings.Contains(problems, `"warning"`) || !strings.HasPrefix(ready, "200 ready") ||
		!strings.Contains(p.log.String(), "damaged state") {
		t.Errorf("problems %s; %s; log %s", problems, ready, p.log.String())
	}
}
