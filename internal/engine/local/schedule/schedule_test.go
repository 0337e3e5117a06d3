package schedule

import (
	"strings"
	"testing"
)

func nodes() []Node {
	label := func(i string) map[string]string { return map[string]string{"lateen.dev/node-index": i, "os": "linux"} }
	return []Node{{Name: "n1", Labels: label("1"), Free: 10}, {Name: "n2", Labels: label("2"), Free: 10}, {Name: "n3", Labels: label("3"), Free: 10}}
}

func TestPick(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func([]Node)
		nodeName string
		selector map[string]string
		want     string
		err      string
	}{
		"the first of equals":         {want: "n1"},
		"fewest of the same owner":    {change: func(n []Node) { n[0].Same, n[0].Pods, n[1].Pods, n[2].Pods = 1, 1, 5, 4 }, want: "n3"},
		"then fewest pods":            {change: func(n []Node) { n[0].Pods, n[1].Pods, n[2].Pods = 3, 1, 2 }, want: "n2"},
		"only where labels fit":       {selector: map[string]string{"lateen.dev/node-index": "2"}, want: "n2"},
		"labels must all fit":         {selector: map[string]string{"lateen.dev/node-index": "2", "os": "plan9"}, err: "lateen.dev/node-index=2,os=plan9"},
		"not where it is full":        {change: func(n []Node) { n[0].Free = 0 }, want: "n2"},
		"full where labels fit":       {change: func(n []Node) { n[1].Free = 0 }, selector: map[string]string{"lateen.dev/node-index": "2"}, err: "no fitting node has a free pod address"},
		"not where it cannot run":     {change: func(n []Node) { n[0].Cannot = "taken" }, want: "n2"},
		"nor where a name binds it":   {change: func(n []Node) { n[2].Cannot = "taken" }, nodeName: "n3", err: "node n3 cannot take the pod: taken"},
		"says why it cannot":          {change: func(n []Node) { n[1].Cannot = "taken" }, selector: map[string]string{"lateen.dev/node-index": "2"}, err: "n2: taken"},
		"a name binds":                {change: func(n []Node) { n[2].Same = 9 }, nodeName: "n3", want: "n3"},
		"a name that is nobody's":     {nodeName: "n9", err: `no node "n9"; nodes are n1, n2, n3`},
		"a label without a value too": {selector: map[string]string{"missing": ""}, err: "missing="},
	} {
		n := nodes()
		if tc.change != nil {
			tc.change(n)
		}
		got, err := Pick(n, tc.nodeName, tc.selector)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got %q, %v; want an error with %q", name, got, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

func TestReplicasSpreadEvenly(t *testing.T) {
	n := nodes()
	for range 9 {
		on, err := Pick(n, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if n[i].Name == on {
				n[i].Same++
				n[i].Pods++
			}
		}
	}
	for _, node := range n {
		if node.Same != 3 {
			t.Errorf("%s has %d of 9 replicas", node.Name, node.Same)
		}
	}
}
