package run

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/scenario"
)

// What a scenario sends to a service is carried by the pair of Envoys, as what it is: nothing that it measures goes through a proxy
// in the open, which the other one would refuse.
func TestThePairOfEnvoysCarriesWhatScenariosSend(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	carried := map[bool]int{}
	for _, sc := range all {
		if sc.Control != nil {
			continue // it sends none
		}
		if slices.Contains(sc.World, "echo-grpc") {
			continue // the pair refuses it, and says so
		}
		pods := pairOf(t, sc)
		for _, cell := range sc.Cells {
			loads := []scenario.Load{sc.Load.With(cell.Load)}
			if cell.Beside != nil {
				loads = append(loads, cell.Beside.Load)
			}
			for _, load := range loads {
				u, err := url.Parse(load.URL)
				if err != nil {
					t.Fatal(err)
				}
				port, err := strconv.ParseUint(u.Port(), 10, 16)
				if err != nil {
					t.Fatalf("%s, %s: %s: %v", sc.Name, cell.Name, load.URL, err)
				}
				tcp := u.Scheme == "tcp"
				i := slices.IndexFunc(pods[0].Services, func(s envoy.Service) bool {
					return (s.Name == "default/"+u.Hostname() || strings.HasPrefix(s.Name, "default/"+u.Hostname()+"/")) && s.Port == uint16(port)
				})
				if i < 0 {
					t.Errorf("%s, %s: the pair knows no service %s: it passes it by", sc.Name, cell.Name, u.Host)
					continue
				}
				carried[tcp]++
				service := pods[0].Services[i]
				if service.TCP != tcp {
					t.Errorf("%s, %s: %s: carried as TCP: %v", sc.Name, cell.Name, load.URL, service.TCP)
				}
				for _, e := range service.Endpoints {
					if receiver := pods[addressOf(e.Addr())]; slices.Contains(receiver.TCP, e.Port()) != tcp {
						t.Errorf("%s, %s: %s: %s takes bytes on %v", sc.Name, cell.Name, load.URL, receiver.Name, receiver.TCP)
					}
				}
			}
		}
	}
	if carried[false] == 0 || carried[true] == 0 {
		t.Errorf("%d loads of HTTP and %d of TCP: both are among the scenarios", carried[false], carried[true])
	}
}

// addressOf is the number of the pod that has an address.
func addressOf(a netip.Addr) int { return int(a.As4()[2])<<8 + int(a.As4()[3]) }

// pairOf configures the proxies of a scenario's world, of which each deployment has one pod.
func pairOf(t *testing.T, sc *scenario.Scenario) []envoy.Pod {
	t.Helper()
	var services []*corev1.Service
	var workloads []envoy.Workload
	for _, part := range sc.World {
		documents, err := scenario.Documents(part, "../../../samples")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents {
			for _, raw := range objectsOf(t, d.Data) {
				var kind metav1.TypeMeta
				decodeInto(t, raw, &kind)
				switch kind.Kind {
				case "Service":
					s := &corev1.Service{}
					decodeInto(t, raw, s)
					if s.Namespace == "" {
						s.Namespace = metav1.NamespaceDefault
					}
					if s.Spec.ClusterIP == "" {
						s.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", len(services)>>8, len(services)&255)
					}
					services = append(services, s)
				case "Deployment":
					d := &appsv1.Deployment{}
					decodeInto(t, raw, d)
					pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
					pod.Name, pod.Namespace = d.Name+"-1", d.Namespace
					if pod.Namespace == "" {
						pod.Namespace = metav1.NamespaceDefault
					}
					n := len(workloads)
					workloads = append(workloads, envoy.Workload{
						Pod: pod, Address: netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)}), Identity: "spiffe://cluster.local/ns/" + pod.Namespace + "/sa/" + d.Name, Dir: "/run/" + pod.Name,
					})
				}
			}
		}
	}
	pods, err := envoy.Pods(workloads, services, nil, envoy.Settings{Protocol: envoy.HTTP2})
	if err != nil {
		t.Fatalf("%s: %v", sc.Name, err)
	}
	for _, p := range pods {
		if _, err := envoy.Bootstrap(p); err != nil {
			t.Errorf("%s: %v", sc.Name, err)
		}
	}
	return pods
}

func objectsOf(t *testing.T, text []byte) (objects [][]byte) {
	t.Helper()
	for d := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		object, err := d.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

func decodeInto(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}
