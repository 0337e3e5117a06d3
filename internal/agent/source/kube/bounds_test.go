package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"

	"lateen.dev/lateen/internal/agent/apiserver/apiservertest"
	"lateen.dev/lateen/internal/model/wellknown"
)

// What the agent keeps of a pod does not grow with what its author writes into it.
func TestWhatIsKeptOfAPodHasABound(t *testing.T) {
	const most = 50 << 10 // nine annotations of 4 KiB, and 64 ports
	big := strings.Repeat("x", 250<<10)
	full := func(p *corev1.Pod) {
		p.Annotations = map[string]string{"other": big}
		for _, name := range keptAnnotations {
			p.Annotations[name] = big
		}
		for i := range 550 {
			port := intstr.FromInt32(int32(1000 + i))
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name: fmt.Sprint("c", i), Image: big[:200],
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}},
			})
		}
	}
	size := func(p *corev1.Pod) int {
		o, err := trimPod(p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	if n := size(pod("web", "u1", full)); n > most {
		t.Errorf("%d bytes are kept of a pod that runs", n)
	}
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		ended := func(p *corev1.Pod) { p.Status.Phase = phase }
		if n := size(pod("web", "u1", full, ended)); n > 1<<10 {
			t.Errorf("%d bytes are kept of a pod that has %s", n, phase)
		}
		// Whether it was captured is still to be known.
		o, _ := trimPod(pod("web", "u1", ended, func(p *corev1.Pod) { p.Annotations = map[string]string{wellknown.Redirection: "enabled"} }))
		if o.(*corev1.Pod).Annotations[wellknown.Redirection] != "enabled" {
			t.Errorf("that a pod that has %s was captured is forgotten", phase)
		}
	}
}

func TestAPodHasItsShareOfProbedPorts(t *testing.T) {
	at := at("10.244.1.20")
	with := func(n int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = nil
			for i := range n {
				port := intstr.FromInt32(int32(9000 - i))
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
					LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}},
				})
			}
		}
	}
	for _, c := range []struct {
		ports, probed int
		refused       string
	}{{0, 0, ""}, {1, 1, ""}, {maxProbed, maxProbed, ""}, {maxProbed + 7, maxProbed, "name 71 ports"}, {550, maxProbed, "name 550 ports"}} {
		o, err := trimPod(pod("web", "u1", at, with(c.ports)))
		if err != nil {
			t.Fatal(err)
		}
		got := described(o.(*corev1.Pod), sandbox{}, "lateen-system")
		if len(got.Probed) != c.probed || c.refused == "" && got.Refused != nil || c.refused != "" && (len(got.Refused) != 1 || !strings.Contains(got.Refused[0], c.refused)) {
			t.Errorf("of %d ports %d are probed, refused %q", c.ports, len(got.Probed), got.Refused)
		}
		// The first that are named.
		if c.probed > 0 && (got.Probed[0].Port() != 9000 || int(got.Probed[c.probed-1].Port()) != 9001-c.probed) {
			t.Errorf("of %d ports are probed %d to %d", c.ports, got.Probed[0].Port(), got.Probed[c.probed-1].Port())
		}
	}
}

// An informer that begins with a list from the watch trims each pod of it twice.
func TestWhatIsTrimmedStaysSo(t *testing.T) {
	ports := func(n int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = make([]corev1.Container, n)
			for i := range p.Spec.Containers {
				c := &p.Spec.Containers[i]
				c.Name = fmt.Sprint("c", i)
				c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(9000 + i)}}}
			}
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a probed one": at("10.244.1.20"), "no container": ports(0), "one port": ports(1), "two": ports(2), "too many": ports(maxProbed + 7),
		"an ended one": func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"a long request": func(p *corev1.Pod) {
			p.Annotations = map[string]string{wellknown.ExcludeInboundPorts: strings.Repeat("1,", 4096)}
		},
	} {
		once, err := trimPod(pod("web", "u1", change))
		if err != nil {
			t.Fatal(err)
		}
		want := once.(*corev1.Pod).DeepCopy()
		twice, err := trimPod(once)
		if err != nil || !reflect.DeepEqual(twice, want) {
			t.Errorf("%s: trimmed again it is %+v, %v; want %+v", name, twice, err, want)
		}
	}
	// A list as the API server gives it.
	p, err := trimPod(pod("web", "u1", at("10.244.1.20")))
	if err == nil {
		p, err = trimPod(p)
	}
	if err != nil || len(described(p.(*corev1.Pod), sandbox{}, "lateen-system").Probed) != 1 {
		t.Errorf("%+v is not probed, %v", p, err)
	}
}

func TestEventsAboutAPodAreWrittenAtAPace(t *testing.T) {
	now := time.Unix(1e9, 0)
	var last lastEvent
	written := 0
	write := func(message string) {
		var news bool
		if last, news = last.next(message, now); news {
			written++
		}
	}
	for i := range 1000 {
		write(fmt.Sprint("another ", i))
	}
	if written != eventBurst {
		t.Errorf("%d events are written at once", written)
	}
	now, written = now.Add(10*time.Minute), 0
	for range 100 {
		write("the same")
		now = now.Add(time.Second)
	}
	if written != 1 {
		t.Errorf("the same is written %d times in 100 s", written)
	}
	now = now.Add(eventGap)
	if write("the same"); written != 2 {
		t.Error("what lasts is not written again after a while")
	}
}

func TestAnEventsNameAndMessageAreTakenByTheAPIServer(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a-", 126) + "a", strings.Repeat("a.", 126) + "a"} {
		got := eventName(name, time.Now())
		if wrong := validation.IsDNS1123Subdomain(got); len(wrong) > 0 || !strings.HasPrefix(got, name[:1]) {
			t.Errorf("of a pod with a name of %d letters it is called %q: %v", len(name), got, wrong)
		}
	}
	for n := range 12 {
		if got := cut("aäöü€😀", n); !utf8.ValidString(got) || len(got) > n || !strings.HasPrefix("aäöü€😀", got) {
			t.Errorf("cut to %d bytes: %q", n, got)
		}
	}
}

func TestTheLogTellsARefusalFromSilence(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err       error
		connected bool
		says      string
	}{
		{errors.New("connection refused"), false, "does not answer"},
		{apierrors.NewForbidden(resource, "", errors.New("no")), false, "may not get, list or watch pods"},
		{apierrors.NewUnauthorized("no"), false, "does not accept its credentials"},
		{apierrors.NewResourceExpired("too old resource version"), true, ""},
		{apierrors.NewGone("too old"), true, ""},
	} {
		var said bytes.Buffer
		connected := true
		h := newHealth(slog.New(slog.NewTextHandler(&said, nil)))
		h.tell(func(c bool) { connected = c })
		h.note(context.Background(), "pods", nil)
		h.note(context.Background(), "pods", c.err)
		if connected != c.connected || !strings.Contains(said.String(), c.says) || c.says == "" && said.Len() > 0 {
			t.Errorf("%v: connected %v, said %q", c.err, connected, said.String())
		}
	}
}

// What is written about pods uses up what may be asked of the API server; births have a budget of their own.
func TestBirthsAskByThemselves(t *testing.T) {
	r := newRig(t)
	births := fake.NewClientset(namespace("shop", ambient), pod("web", "u1"))
	s, err := New(apiservertest.Over(r.client), Options{Node: "n1", File: filepath.Join(r.dir, "boxes"), Proc: r.dir, Mounts: r.dir, Log: slog.New(slog.DiscardHandler), Births: apiservertest.Over(births)})
	if err != nil {
		t.Fatal(err)
	}
	uid, wanted, err := s.Born(t.Context(), r.birth("web", "u1"))
	if err != nil || uid != "u1" || !wanted {
		t.Errorf("born: %q, %v, %v", uid, wanted, err)
	}
	if len(r.client.Actions()) > 0 {
		t.Errorf("asked of the client that others use: %v", r.client.Actions())
	}
}
