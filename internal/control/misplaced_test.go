package control

import (
	"strings"
	"testing"
)

func TestAPodWithSomebodyElsesAddressIsAmongTheProblems(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base+"---\n"+service+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: forged, namespace: shop}\nspec: {nodeName: n2, containers: [{name: c}]}\nstatus: {podIP: 10.96.0.20}\n")
	x := p.proxy()
	eventually(t, "the service is known", func() bool { return x.knows(webHost) })
	var problems []struct{ Severity, Object, Message string }
	p.debug("/debug/problems", &problems)
	if len(problems) != 1 || problems[0].Severity != "warning" || problems[0].Object != "Pod shop/forged" ||
		!strings.Contains(problems[0].Message, "10.96.0.20 of Pod shop/forged belongs to Service shop/web") {
		t.Errorf("problems %+v", problems)
	}
}
