package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
)

func result(t *testing.T, report check.Report, code string) check.Result {
	t.Helper()
	i := slices.IndexFunc(report.Results, func(r check.Result) bool { return r.Code == code })
	if i < 0 {
		t.Fatalf("%s was not checked", code)
	}
	return report.Results[i]
}

// The fix of LAT105 must be one: a node that the mesh is kept from is in nobody's way.
func TestNodesThatTheMeshIsKeptFromDoNotCount(t *testing.T) {
	old := func(change func(*corev1.Node)) *corev1.Node {
		return clusterNode("n2", func(n *corev1.Node) {
			n.Status.NodeInfo.KernelVersion = "4.18.0"
			change(n)
		})
	}
	windows := func(n *corev1.Node) {
		n.Labels = map[string]string{"kubernetes.io/os": "windows"}
		n.Spec.Taints = []corev1.Taint{{Key: "os", Value: "windows", Effect: corev1.TaintEffectNoSchedule}, {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}
	}
	both := func(key string, value any) map[string]any {
		return map[string]any{"agent": map[string]any{key: value}, "node": map[string]any{key: value}}
	}
	for _, x := range []struct {
		name   string
		values map[string]any
		kept   bool
	}{
		{"by nothing", nil, false},
		{"by a label that it has", both("nodeSelector", map[string]any{"kubernetes.io/os": "windows"}), false},
		{"by a label", both("nodeSelector", map[string]any{"kubernetes.io/os": "linux"}), true},
		{"the agents alone", map[string]any{"agent": map[string]any{"nodeSelector": map[string]any{"kubernetes.io/os": "linux"}}}, false},
		{"by a taint", both("tolerations", []any{}), true},
		{"by a taint that is tolerated", both("tolerations", []any{map[string]any{"key": "os", "operator": "Equal", "value": "windows"}}), false},
		{"by another taint that is tolerated", both("tolerations", []any{map[string]any{"key": "gpu", "operator": "Exists"}}), true},
	} {
		for _, purpose := range []check.Purpose{Before, Installed} {
			r := good()
			r.objects[0] = clusterNode("n1", func(n *corev1.Node) { n.Labels = map[string]string{"kubernetes.io/os": "linux"} })
			r.objects = append(r.objects, old(windows))
			r.values, r.record.Values = x.values, x.values
			r.pages.status.Nodes = append(r.pages.status.Nodes, api.NodeState{Name: "n2"})
			report := r.run(t, purpose)
			if got := result(t, report, "LAT105"); (got.Outcome == check.OK) != x.kept || x.kept && !strings.Contains(got.Found, "kept from 1 more") {
				t.Errorf("%s, %s: %+v", x.name, purpose, got)
			}
			// A node proxy is away from where it is not to be.
			if purpose == Installed && x.name != "the agents alone" {
				if got := result(t, report, "LAT124"); (got.Outcome == check.OK) != x.kept {
					t.Errorf("%s: %+v", x.name, got)
				}
			}
		}
	}
}

func certificate(t *testing.T, name string) ([]byte, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"cluster.local"}, CommonName: name}, NotBefore: now, NotAfter: now.AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), c
}

// Any root will not do: with that of a former mesh no node proxy speaks to the control plane.
func TestTheRootsAreTheControlPlanes(t *testing.T) {
	former, _ := certificate(t, "former")
	ours, c := certificate(t, "root")
	with := func(bundle []byte) check.Result {
		r := good()
		for i, o := range r.objects {
			if m, ok := o.(*corev1.ConfigMap); ok && m.Name == "istio-ca-root-cert" {
				r.objects[i] = configMap(m.Namespace, m.Name, map[string]string{"root-cert.pem": string(bundle)})
			}
		}
		r.pages.status.Control.CA.Trusted = []api.CARoot{{Subject: c.Subject.String(), Expires: c.NotAfter.In(time.FixedZone("x", 3600))}}
		return result(t, r.run(t, Installed), "LAT126")
	}
	if got := with(ours); got.Outcome != check.OK {
		t.Errorf("%+v", got)
	}
	if got := with(bytes.Join([][]byte{former, ours}, nil)); got.Outcome != check.OK {
		t.Errorf("while a root is replaced: %+v", got)
	}
	for _, bundle := range [][]byte{former, []byte("x")} {
		if got := with(bundle); got.Outcome != check.Failure || !strings.Contains(got.Cause, "lateen-system/istio-ca-root-cert does not hold CN=root") || !strings.Contains(got.Fix, "kubectl delete configmap -n lateen-system") {
			t.Errorf("%+v", got)
		}
	}
}

func TestWhatOnlyLooksLikeAnotherMeshIsAWarning(t *testing.T) {
	one := int32(1)
	r := good()
	r.objects = append(r.objects, runtime.Object(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "istiod", Labels: map[string]string{"app": "istiod"}}, Spec: appsv1.DeploymentSpec{Replicas: &one}}))
	if got := result(t, r.run(t, Before), "LAT104"); got.Outcome != check.Warning || !strings.Contains(got.Cause, "Deployment istiod in namespace tenant") {
		t.Errorf("%+v", got)
	}
}

// That nobody may say what is installed is not that nothing is.
func TestWhatCannotBeFoundIsNotSaidToBeMissing(t *testing.T) {
	r := good()
	r.record, r.unfound = nil, &api.Error{Code: 403, Message: "the API server refuses: clusterrolebindings is forbidden", Fix: "use credentials of a cluster administrator"}
	report := r.run(t, Installed)
	if got := result(t, report, "LAT120"); got.Outcome != check.Failure || !strings.Contains(got.Cause, "forbidden") || strings.Contains(got.Fix, "lateen install") {
		t.Errorf("%+v", got)
	}
	for _, code := range []string{"LAT121", "LAT124", "LAT127", "LAT128", "LAT131"} {
		if got := result(t, report, code); got.Outcome == check.OK || !strings.Contains(got.Cause, "not known") {
			t.Errorf("%+v", got)
		}
	}
}
