package meaning

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	meshapi "istio.io/api/mesh/v1alpha1"
	securityapi "istio.io/api/security/v1beta1"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/model/wellknown"
)

// A field that a later istio.io/api adds to MeshConfig must be given a stance.
func TestEveryFieldOfMeshConfigHasAStance(t *testing.T) {
	known := stances()
	fields := (&meshapi.MeshConfig{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := fields.Get(i).JSONName()
		if _, ok := known[name]; !ok {
			t.Errorf("MeshConfig has the field %s, and nothing says what comes of it", name)
		}
		if other := camel(string(fields.Get(i).Name())); other != name {
			t.Errorf("%s is read as %s", fields.Get(i).Name(), other)
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("MeshConfig has no field %s", name)
	}
}

// The fields of a policy that are read are all that there are: one more would be passed over.
func TestEveryFieldOfARuleIsRead(t *testing.T) {
	for _, x := range []struct {
		of   any
		make func(reflect.Value) *securityapi.Rule
	}{
		{securityapi.Source{}, func(v reflect.Value) *securityapi.Rule {
			return &securityapi.Rule{From: []*securityapi.Rule_From{{Source: v.Interface().(*securityapi.Source)}}}
		}},
		{securityapi.Operation{}, func(v reflect.Value) *securityapi.Rule {
			return &securityapi.Rule{To: []*securityapi.Rule_To{{Operation: v.Interface().(*securityapi.Operation)}}}
		}},
	} {
		kind := reflect.TypeOf(x.of)
		for i := range kind.NumField() {
			if f := kind.Field(i); !f.IsExported() || f.Type != reflect.TypeOf([]string{}) {
				continue
			}
			v := reflect.New(kind)
			v.Elem().Field(i).Set(reflect.ValueOf([]string{"1"}))
			clauses, drops, _ := readRule(x.make(v))
			if m := clauses[0][0]; m.then == 0 && !drops {
				t.Errorf("%s.%s is not read", kind.Name(), kind.Field(i).Name)
			}
		}
	}
}

// The agent decides whether a pod is captured.
func TestPodsAreEnrolledAsTheAgentDoes(t *testing.T) {
	for _, label := range []string{"", "ambient", "none", "other"} {
		for _, of := range []string{"", "ambient", "none"} {
			for i := range 4 {
				host, annotations := i%2 == 1, map[string]string{}
				if i > 1 {
					annotations[wellknown.ConfigMirror] = "x"
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Annotations: annotations, Labels: map[string]string{wellknown.DataplaneMode: label}}, Spec: corev1.PodSpec{HostNetwork: host}}
				c := &comparison{Cluster: &Cluster{}, namespaces: map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{wellknown.DataplaneMode: of}}}}}
				want := source.Enrolled(source.Pod{Labels: pod.Labels, Annotations: annotations, HostNetwork: host}, source.Namespace{Labels: c.namespaces["shop"].Labels})
				if got := c.enrolled(pod); got != want {
					t.Errorf("pod %q in namespace %q, hostNetwork %v, annotations %v: %v", label, of, host, annotations, got)
				}
			}
		}
	}
}

// The ranges are those in which the control plane keeps addresses.
func TestTheRangesAreTheControlPlanes(t *testing.T) {
	for _, p := range virtual {
		if err := compile.CheckAddresses(map[string][]netip.Addr{"a": {p.Addr().Next()}}); err != nil {
			t.Error(err)
		}
		if err := compile.CheckAddresses(map[string][]netip.Addr{"a": {p.Addr().Prev()}}); err == nil {
			t.Errorf("%s begins earlier", p)
		}
	}
}

// A variable that the node proxies do not know by the name cannot be kept by setting it.
func TestAdoptedVariablesAreTheNodeProxys(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Clone(adopted)
	for name, v := range ztunnelVariables {
		if slices.ContainsFunc(v.keep, func(l string) bool { return strings.Contains(l, "node.env."+name) }) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("the node proxy has no variable %s", name)
		}
	}
}

// Lines that are said to keep today's meaning do so: with them the difference is gone.
func TestTheLinesKeepTodaysMeaning(t *testing.T) {
	tried := map[string]bool{}
	for _, x := range cases {
		c := standard()
		if x.objects != "" {
			with(t, c, x.objects)
		}
		if x.change != nil {
			x.change(c)
		}
		for _, d := range Compare(c).Differences {
			if len(d.Keep) == 0 || !strings.HasSuffix(d.Keep[0], ":") || strings.HasPrefix(d.Keep[0], "#") || !patched(t, c, d) {
				continue
			}
			tried[d.Rule] = true
			for _, left := range Compare(c).Differences {
				if left.Rule == d.Rule && left.Object == d.Object {
					t.Errorf("%s: with %q it is still said of %s", x.name, d.Keep, left.Object)
				}
			}
		}
	}
	for _, rule := range []string{"authorization-empty-selector", "peer-root-selector", "peer-root-empty-selector", "peer-disabled-port", "peer-ports", "entry-export-to", "entry-visibility", "entry-address", "service-export-to", "namespace-injection", "pod-leaves"} {
		if !tried[rule] {
			t.Errorf("the lines of %s were not tried", rule)
		}
	}
}

// patched lays the lines over the object that they are about, and says whether there is one.
func patched(t *testing.T, c *Cluster, d Difference) bool {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(strings.Join(d.Keep, "\n")))
	if err != nil {
		t.Fatalf("%s: %v", d.Keep, err)
	}
	switch d.Kind {
	case "AuthorizationPolicy":
		return lay(t, c.AuthorizationPolicies, d.Object, raw)
	case "PeerAuthentication":
		return lay(t, c.PeerAuthentications, d.Object, raw)
	case "ServiceEntry":
		return lay(t, c.ServiceEntries, d.Object, raw)
	case "Service":
		return lay(t, c.Services, d.Object, raw)
	case "Namespace":
		if !slices.ContainsFunc(c.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == d.Name }) {
			c.Namespaces = append(c.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.Name}})
		}
		return lay(t, c.Namespaces, d.Object, raw)
	}
	return false
}

func lay[T metav1.Object](t *testing.T, all []T, of Object, patch []byte) bool {
	t.Helper()
	for i, o := range all {
		if o.GetName() != of.Name || o.GetNamespace() != of.Namespace {
			continue
		}
		base, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var into, over map[string]any
		if err := json.Unmarshal(base, &into); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(patch, &over); err != nil {
			t.Fatal(err)
		}
		merge(into, over)
		merged, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		fresh := reflect.New(reflect.TypeOf(o).Elem()).Interface()
		if err := json.Unmarshal(merged, fresh); err != nil {
			t.Fatal(err)
		}
		all[i] = fresh.(T)
		return true
	}
	return false
}

func merge(into, over map[string]any) {
	for k, v := range over {
		a, ok := into[k].(map[string]any)
		if b, isMap := v.(map[string]any); ok && isMap {
			merge(a, b)
			continue
		}
		into[k] = v
	}
}

func TestTheOrderIsAlwaysTheSame(t *testing.T) {
	build := func(shuffle bool) Report {
		c := standard()
		for i := range 30 {
			name := fmt.Sprint("p", i)
			c.AuthorizationPolicies = append(c.AuthorizationPolicies, &securityv1.AuthorizationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: securityapi.AuthorizationPolicy{TargetRef: nil, Selector: nil, Action: securityapi.AuthorizationPolicy_DENY,
				Rules: []*securityapi.Rule{{When: []*securityapi.Condition{{Key: sourceTrustDomain, Values: []string{"x"}}}}}}})
			c.Unserved = append(c.Unserved, Object{"VirtualService", "shop", name})
			c.ServiceEntries = append(c.ServiceEntries, &networkingv1.ServiceEntry{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}})
			c.ServiceEntries[i].Spec.ExportTo = []string{"."}
			c.Proxies[0].Hidden = map[string]string{"CRL_PATH": "a Secret", "NETWORK": "a Secret", "PROXY_CONFIG": "a Secret"}
		}
		if shuffle {
			rand.Shuffle(30, func(i, j int) {
				c.AuthorizationPolicies[i], c.AuthorizationPolicies[j] = c.AuthorizationPolicies[j], c.AuthorizationPolicies[i]
				c.Unserved[i], c.Unserved[j] = c.Unserved[j], c.Unserved[i]
				c.ServiceEntries[i], c.ServiceEntries[j] = c.ServiceEntries[j], c.ServiceEntries[i]
			})
		}
		return Compare(c)
	}
	first := build(false)
	if first.Differences[0].Severity != AccessCloses || first.Differences[len(first.Differences)-1].Severity != NotServed {
		t.Errorf("the gravest does not come first: %v", lines(first))
	}
	for range 20 {
		if got := build(true); !reflect.DeepEqual(got, first) {
			t.Fatal("the order differs")
		}
	}
}

func TestManyObjectsAreNamedUpToABound(t *testing.T) {
	c := standard()
	for i := range mostNamed + 7 {
		c.Unserved = append(c.Unserved, Object{"VirtualService", "shop", fmt.Sprintf("v%03d", i)})
	}
	d := Compare(c).Differences[0]
	if len(d.Objects) != mostNamed || d.More != 7 || d.Objects[0] != "shop/v000" {
		t.Errorf("%v and %d more", d.Objects, d.More)
	}
}

// Objects that cannot be judged are named, and do not count as the same.
func TestWhatCannotBeJudgedIsSaid(t *testing.T) {
	c := standard()
	c.MeshConfigs[0].Mesh = "- not\n- a map"
	c.Control[0].Hidden = map[string]string{"PILOT_AUTO_ALLOW_WAYPOINT_POLICY": "Secret x", "GOMAXPROCS": "a field"}
	c.Unread = []string{"pods: forbidden"}
	r := Compare(c)
	if got := strings.Join(r.Unread, "\n"); len(r.Unread) != 3 || !strings.Contains(got, "MeshConfig of ConfigMap istio-system/istio is no YAML") ||
		!strings.Contains(got, "PILOT_AUTO_ALLOW_WAYPOINT_POLICY of Deployment istio-system/istiod stands in Secret x") || !strings.Contains(got, "pods: forbidden") {
		t.Error(got)
	}
}

func TestWhatRefusesIsAcceptedByName(t *testing.T) {
	c := standard()
	mesh("serviceEntryVisibility: {defaultVisibility: NAMESPACE}\nconfigSources: [{address: 'fs:///x'}]\n")(c)
	r := Compare(c)
	unknown := r.Accept([]string{"meshConfig.configSources", "meshConfig.nothing"})
	left := r.Refusing()
	if !slices.Equal(unknown, []string{"meshConfig.nothing"}) || len(left) != 1 || left[0].Named() != "meshConfig.serviceEntryVisibility" {
		t.Errorf("unknown %v, left %v", unknown, left)
	}
}

// An owner of a namespace may name every port in one object. The dry run of a take-over must not take hours because of it.
func TestAnObjectThatNamesAllPortsIsReadOnce(t *testing.T) {
	c := with(t, standard(), "kind: PeerAuthentication\nmetadata: {name: p, namespace: shop}\nspec: {selector: {matchLabels: {app: a}}, portLevelMtls: {1: {mode: STRICT}}}")
	for port := range uint32(65535) {
		c.PeerAuthentications[0].Spec.PortLevelMtls[port+1] = &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_STRICT}
	}
	start := time.Now()
	if got := Compare(c).Differences; len(got) > 0 {
		t.Errorf("it differs: %v", got)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// istiod's two readings of ports, worked out by hand from what it sends: the policies that a workload names, and what each refuses.
func TestPortsAsIstiodReadsThem(t *testing.T) {
	const unset, strict, permissive, disable = 0, 3, 2, 1 // MutualTLS_Mode
	object := func(mode int32, ports map[uint32]int32) *securityv1.PeerAuthentication {
		pa := &securityv1.PeerAuthentication{Spec: securityapi.PeerAuthentication{Mtls: &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_Mode(mode)}}}
		for port, m := range ports {
			if pa.Spec.PortLevelMtls == nil {
				pa.Spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{}
			}
			pa.Spec.PortLevelMtls[port] = &securityapi.PeerAuthentication_MutualTLS{Mode: securityapi.PeerAuthentication_MutualTLS_Mode(m)}
		}
		return pa
	}
	for _, x := range []struct {
		name            string
		mode            int32
		ports           map[uint32]int32
		namespace, mesh *securityv1.PeerAuthentication
		inherited       bool
		want            map[uint32]bool // by port; 0 are all others
	}{
		{"nothing inherited, one port", unset, map[uint32]int32{80: strict}, nil, nil, false, map[uint32]bool{0: false, 80: true}},
		{"a strict mesh, one port free", unset, map[uint32]int32{80: permissive}, nil, object(strict, nil), true, map[uint32]bool{0: true, 80: false}},
		{"a strict mesh, one port disabled", unset, map[uint32]int32{80: disable}, nil, object(strict, nil), true, map[uint32]bool{0: true, 80: true}},
		{"a strict mesh, one port disabled and one free", unset, map[uint32]int32{80: disable, 81: permissive}, nil, object(strict, nil), true, map[uint32]bool{0: true, 80: false, 81: false}},
		{"a strict namespace, one port free", unset, map[uint32]int32{80: permissive}, object(strict, nil), nil, true, map[uint32]bool{0: true, 80: false}},
		{"a namespace that says nothing under a strict mesh", unset, map[uint32]int32{80: permissive}, object(unset, nil), object(strict, nil), true, map[uint32]bool{0: false, 80: false}},
		{"a free workload with a strict port under a strict mesh", permissive, map[uint32]int32{80: strict}, nil, object(strict, nil), true, map[uint32]bool{0: false, 80: false}},
		{"a free workload with a strict port under a strict namespace", permissive, map[uint32]int32{80: strict}, object(strict, nil), nil, true, map[uint32]bool{0: false, 80: true}},
		{"a strict workload with a free port", strict, map[uint32]int32{80: permissive, 81: strict}, nil, nil, false, map[uint32]bool{0: true, 80: false, 81: true}},
		{"a strict workload with a disabled port", strict, map[uint32]int32{80: disable}, nil, nil, false, map[uint32]bool{0: true, 80: false}},
		{"a strict workload, all ports strict", strict, map[uint32]int32{80: strict}, nil, nil, false, map[uint32]bool{0: true, 80: true}},
		{"a disabled workload", disable, nil, nil, object(strict, nil), true, map[uint32]bool{0: false}},
	} {
		strict := ambientPeer{pa: object(x.mode, x.ports), namespace: x.namespace, mesh: x.mesh, inherited: x.inherited}.strict()
		for port, want := range x.want {
			if got := strict(port); got != want {
				t.Errorf("%s: port %d refuses plaintext: %v", x.name, port, got)
			}
		}
	}
}
