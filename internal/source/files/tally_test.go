package files

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/model"
)

// An object may have hundreds of thousands of faults. They are counted, but not each put into words.
func TestFaultsThatNobodyReadsAreOnlyCounted(t *testing.T) {
	const many = 20_000
	list := func(value string) string { return strings.TrimSuffix(strings.Repeat(`"`+value+`",`, many), ",") }
	labels := func() string {
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, `"!%05d":"v",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for _, c := range []struct {
		name, spec string
		severity   Severity
	}{
		{"of a list", `{"action":"DENY","rules":[{"from":[{"source":{"ipBlocks":[` + list("x") + `]}}]}]}`, Refused},
		{"of a list of stars", `{"action":"DENY","rules":[{"from":[{"source":{"principals":[` + list("a*b*") + `]}}]}]}`, Warning},
		{"of labels", `{"action":"DENY","selector":{"matchLabels":{` + labels() + `}},"rules":[{}]}`, Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "p"}
			raw := []byte(`{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"p","namespace":"shop"},"spec":` + c.spec + `}`)
			value, problems := Served(key, raw)
			if (value == nil) != (c.severity == Refused) {
				t.Errorf("it is %v", value)
			}
			want := fmt.Sprintf("%d more of the kind", many-mostFaults+1)
			if len(problems) != mostFaults || !strings.Contains(problems[mostFaults-1].Message, want) || problems[mostFaults-1].Severity != c.severity {
				t.Errorf("%d problems, the last %v; want %q", len(problems), problems[len(problems)-1], want)
			}
			k := kinds[groupKind{key.Group, key.Kind}]
			decoded, faults := k.decode(raw)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			if faults = k.check(decoded); len(faults) != mostFaults {
				t.Errorf("%d are put into words", len(faults))
			}
		})
	}
}

// Nor are those of a ServiceEntry's namespaces.
func TestFaultyNamespacesAreOnlyCounted(t *testing.T) {
	const many = 20_000
	list := make([]string, many)
	for i := range list {
		list[i] = "shop"
	}
	var faults []fault
	if n := testing.AllocsPerRun(1, func() { faults = checkExportTo("shop", list) }); n > many/10 {
		t.Errorf("%d faults, of which %d are told, cost %.0f allocations", many-1, len(faults), n)
	}
	if len(faults) != mostFaults || faults[0].field != "spec.exportTo[1]" || !strings.Contains(faults[0].message, `"shop" is listed twice`) || faults[mostFaults-1].more != many-1-mostFaults {
		t.Errorf("%d are told, the first %+v", len(faults), faults[0])
	}
}
