package kube

import (
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/randfill"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

// filler makes objects with every field filled in, and with values that matter more often than chance would have them.
func filler(seed int64) *randfill.Filler {
	one := func(r randfill.Continue, of ...string) string { return of[r.Intn(len(of))] }
	yes := true
	return randfill.New().NilChance(0.2).NumElements(0, 3).RandSource(rand.NewSource(seed)).Funcs(
		func(m *metav1.ObjectMeta, r randfill.Continue) {
			r.FillNoCustom(m)
			m.Name, m.Namespace = one(r, "a", "b"), one(r, "x", "y")
			m.Labels = map[string]string{one(r, "app", "version", wellknown.Tunnel, wellknown.AppName, wellknown.UseWaypoint, "pod-template-hash"): one(r, "http", "1", "w")}
			m.Annotations = map[string]string{"example.com/x": "y"}
			for _, k := range wellknown.Keys {
				if k.Kind == wellknown.Annotation && r.Intn(3) == 0 {
					m.Annotations[k.Name] = one(r, "enabled", "true", "*", ".")
				}
			}
			m.CreationTimestamp, m.DeletionTimestamp = metav1.Unix(r.Int63n(1e9), 0), nil
			if r.Intn(3) == 0 {
				m.DeletionTimestamp = &m.CreationTimestamp
			}
			m.OwnerReferences = nil
			if r.Bool() {
				m.OwnerReferences = []metav1.OwnerReference{{Kind: "X", Name: "other"},
					{APIVersion: one(r, "v1", "apps/v1"), Kind: one(r, "ReplicaSet", "Job", "StatefulSet", "Node"), Name: one(r, "web-1", "web"), Controller: &yes, UID: "u"}}
			}
		},
		func(p *corev1.PodIP, r randfill.Continue) { p.IP = fmt.Sprintf("10.0.0.%d", r.Intn(250)) },
		func(p *corev1.PodPhase, r randfill.Continue) {
			*p = corev1.PodPhase(one(r, "Running", "Pending", "Running", "Failed"))
		},
		func(p *corev1.ContainerPort, r randfill.Continue) {
			*p = corev1.ContainerPort{Name: one(r, "", "http", "admin"), ContainerPort: int32(1 + r.Intn(9)), Protocol: corev1.Protocol(one(r, "", "TCP", "UDP")), HostPort: 7}
		},
		func(p *corev1.ContainerRestartPolicy, r randfill.Continue) {
			*p = corev1.ContainerRestartPolicy(one(r, "Always", "Never"))
		},
		func(c *corev1.PodCondition, r randfill.Continue) {
			r.FillNoCustom(c)
			c.Type, c.Status = corev1.PodConditionType(one(r, "Ready", "PodScheduled")), corev1.ConditionStatus(one(r, "True", "False"))
		},
		func(p *corev1.ServicePort, r randfill.Continue) {
			r.FillNoCustom(p)
			p.Name, p.Port, p.Protocol = one(r, "http", "admin"), int32(1+r.Intn(9)), corev1.Protocol(one(r, "", "TCP", "UDP"))
		},
		func(p *corev1.ServiceInternalTrafficPolicy, r randfill.Continue) {
			*p = corev1.ServiceInternalTrafficPolicy(one(r, "Local", "Cluster"))
		},
		func(f *corev1.IPFamily, r randfill.Continue) { *f = corev1.IPFamily(one(r, "IPv4", "IPv6")) },
		func(p *intstr.IntOrString, r randfill.Continue) {
			*p = intstr.FromString(one(r, "http", "admin"))
			if r.Bool() {
				*p = intstr.FromInt32(int32(r.Intn(9)))
			}
		},
		func(s *corev1.ServiceSpec, r randfill.Continue) {
			r.FillNoCustom(s)
			if s.TrafficDistribution != nil {
				*s.TrafficDistribution = one(r, "PreferClose", "PreferSameNode")
			}
			s.SessionAffinity = corev1.ServiceAffinity(one(r, "None", "ClientIP"))
			s.ClusterIP, s.ClusterIPs, s.Type = "10.96.0.1", []string{"10.96.0.1"}, corev1.ServiceType(one(r, "ClusterIP", "LoadBalancer", "ExternalName"))
		},
		func(r *kruntime.RawExtension, _ randfill.Continue) {},
		func(f *metav1.FieldsV1, _ randfill.Continue) {},
	)
}

// What is kept must be all that is read: proxies are told the same of the whole object and of what is kept of it.
func TestWhatIsKeptIsAllThatIsRead(t *testing.T) {
	mesh := translate.Mesh{ClusterID: "c", DomainSuffix: "cluster.local"}
	in := newInterner()
	pods, fits := map[string]int{}, map[translate.Fit]int{}
	for seed := range int64(400) {
		f := filler(seed)
		var p corev1.Pod
		var s corev1.Service
		var n corev1.Node
		var ns corev1.Namespace
		var e discoveryv1.EndpointSlice
		f.Fill(&p)
		f.Fill(&s)
		f.Fill(&n)
		f.Fill(&ns)
		f.Fill(&e)
		slim := pod(in, p.DeepCopy())
		offers := []translate.Offer{translate.ServiceOffer(mesh, &s)}
		whole, said := translate.Workload(mesh, &p, translate.WorkloadInput{Node: &n, Offers: offers, Context: translate.Context{Namespace: &ns}})
		kept, saidOfKept := translate.Workload(mesh, slim, translate.WorkloadInput{Node: node(in, n.DeepCopy()),
			Offers: []translate.Offer{translate.ServiceOffer(mesh, service(in, s.DeepCopy()))}, Context: translate.Context{Namespace: namespace(in, ns.DeepCopy())}})
		if diff := cmp.Diff(whole, kept, protocmp.Transform()); diff != "" || !reflect.DeepEqual(said, saidOfKept) {
			t.Fatalf("seed %d: of what is kept of a pod proxies are told something else:\n%s%v\n%v", seed, diff, said, saidOfKept)
		}
		if whole != nil {
			pods["workload"]++
		}
		account, identified := model.Account(&p)
		if keptAccount, kept := model.Account(slim); kept != identified || keptAccount != account {
			t.Fatalf("seed %d: a pod's identity is not kept: %q, %v", seed, keptAccount, kept)
		}
		if p.DeletionTimestamp != nil && (!reflect.DeepEqual(slim.DeletionGracePeriodSeconds, p.DeletionGracePeriodSeconds) ||
			!reflect.DeepEqual(slim.Spec.TerminationGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds)) {
			t.Fatalf("seed %d: the time that a deleted pod has to end is not kept", seed)
		}
		if slim.Spec.Hostname != p.Spec.Hostname || slim.Spec.Subdomain != p.Spec.Subdomain || slim.UID != p.UID || !reflect.DeepEqual(translate.OwnAddresses(slim), translate.OwnAddresses(&p)) {
			t.Fatalf("seed %d: a pod's names or addresses are not kept", seed)
		}
		a, saidA := translate.Service(mesh, &s, translate.Context{Namespace: &ns})
		b, saidB := translate.Service(mesh, service(in, s.DeepCopy()), translate.Context{Namespace: namespace(in, ns.DeepCopy())})
		if diff := cmp.Diff(a, b, protocmp.Transform()); diff != "" || !reflect.DeepEqual(saidA, saidB) {
			t.Fatalf("seed %d: of what is kept of a Service proxies are told something else:\n%s", seed, diff)
		}
		e.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
		of := func(p *corev1.Pod) func(string) *corev1.Pod { return func(string) *corev1.Pod { return p } }
		wa, _ := translate.EndpointSlice(mesh, &e, &s, of(&p))
		wb, _ := translate.EndpointSlice(mesh, endpointSlice(in, e.DeepCopy()), service(in, s.DeepCopy()), of(slim))
		if diff := cmp.Diff(wa, wb, protocmp.Transform()); diff != "" {
			t.Fatalf("seed %d: of what is kept of an EndpointSlice proxies are told something else:\n%s", seed, diff)
		}
		if !reflect.DeepEqual(translate.NodeAddresses(node(in, n.DeepCopy())), translate.NodeAddresses(&n)) {
			t.Fatalf("seed %d: a node's addresses are not kept", seed)
		}
		// A range that the pod is in, and one that it is not in; a node that is heard of, and one that is not.
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "", []string{"10.0.0.0/24", "fd00::/64"}
		switch seed % 4 {
		case 0:
			n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.0/24", nil
		case 1:
			n.Spec.PodCIDRs = []string{"10.9.0.0/24"}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if seed%3 == 0 {
			n.Status.Conditions[1].Status = corev1.ConditionUnknown
		}
		keptNode := node(in, n.DeepCopy())
		if got, want := translate.PodFit(slim, keptNode), translate.PodFit(&p, &n); got != want {
			t.Fatalf("seed %d: a node's ranges are not kept: the pod's fit is %v, want %v", seed, got, want)
		} else {
			fits[got]++
		}
		if got, want := translate.Leaving(slim, keptNode), translate.Leaving(&p, &n); got != want {
			t.Fatalf("seed %d: it is not kept whether a node is heard of: its pod is leaving: %v, want %v", seed, got, want)
		}
	}
	if pods["workload"] < 50 {
		t.Errorf("%d of 400 pods made a workload: the test says little", pods["workload"])
	}
	if len(fits) < 3 {
		t.Errorf("the pods' fits are %v: the test says little", fits)
	}
}

func TestEqualPartsShareTheirMemory(t *testing.T) {
	in := newInterner()
	yes := true
	make := func(name string) *corev1.Pod {
		return pod(in, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{"app": "web", "version": "1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-1", Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}}})
	}
	a, b := make("a"), make("b")
	if reflect.ValueOf(a.Labels).Pointer() != reflect.ValueOf(b.Labels).Pointer() || &a.OwnerReferences[0] != &b.OwnerReferences[0] || &a.Spec.Containers[0] != &b.Spec.Containers[0] {
		t.Error("two replicas have labels, owners or ports of their own")
	}
	for i := range 3 * most {
		in.text(fmt.Sprint(i))
		in.labels(map[string]string{"a": fmt.Sprint(i)})
	}
	if len(in.texts.by) > most || len(in.labelSets.by) > most {
		t.Errorf("it remembers %d texts and %d sets of labels", len(in.texts.by), len(in.labelSets.by))
	}
}

// Whoever may change one pod gives it as much of everything as an object can hold, again and again.
func TestOnePodDoesNotFillTheMemory(t *testing.T) {
	in := newInterner()
	yes := true
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	for i := range 60 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "tenant", Labels: map[string]string{}, Annotations: map[string]string{wellknown.DryRun: fmt.Sprint(i, strings.Repeat("a", 200<<10))},
			OwnerReferences: []metav1.OwnerReference{{Kind: "X", Name: fmt.Sprint(i, strings.Repeat("o", 100<<10)), Controller: &yes}}}}
		for j := range 2000 {
			p.Labels[fmt.Sprintf("%s/%s%d", strings.Repeat("d", 240), strings.Repeat("k", 50), j)] = fmt.Sprintf("%063d", i*2000+j)
		}
		for j := range 3000 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: fmt.Sprintf("port-%d", i*3000+j), ContainerPort: 80}}})
		}
		pod(in, p)
	}
	if grown := int64(live()) - int64(before); grown > 16<<20 {
		t.Errorf("%d MB stay of a pod that was changed 60 times", grown>>20)
	}
	for i := range 4 * most { // many sets of which each is small enough
		in.labels(map[string]string{"a": fmt.Sprint(i, strings.Repeat("x", 2000))})
	}
	for what, bytes := range map[string]int{"texts": in.texts.bytes, "labels": in.labelSets.bytes, "owners": in.owners.bytes, "ports": in.portSets.bytes} {
		if bytes > mostBytes {
			t.Errorf("keys of %s take %d bytes", what, bytes)
		}
	}
	sum := 0
	for key := range in.labelSets.by {
		sum += len(key)
	}
	if sum != in.labelSets.bytes || sum == 0 {
		t.Errorf("%d bytes are counted of %d", in.labelSets.bytes, sum)
	}
	runtime.KeepAlive(in)
}

func TestOfAGatewaysConditionsTwoAreReadBack(t *testing.T) {
	at := metav1.Unix(1000, 0)
	gw := &gatewayv1.Gateway{Status: gatewayv1.GatewayStatus{Conditions: []metav1.Condition{
		{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: at},
		{Type: "Programmed", Status: "False", Reason: "Pending", Message: "it waits", ObservedGeneration: 3, LastTransitionTime: at},
		{Type: wellknown.Deployed, Status: "False", Reason: "Stuck", Message: "no pod", ObservedGeneration: 3, LastTransitionTime: at},
	}}}
	trim(gw)
	want := []metav1.Condition{{Type: "Programmed", Status: "False"}, {Type: wellknown.Deployed, Status: "False", Reason: "Stuck", Message: "no pod"}}
	if !reflect.DeepEqual(gw.Status.Conditions, want) {
		t.Errorf("kept %+v", gw.Status.Conditions)
	}
}
