package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// asPlugin is set in a process that is this test's binary and acts as the plugin. Its value says which times it has.
const asPlugin = "LATEEN_TEST_PLUGIN"

const long = 20 * time.Second

// An agent that is to be heard has as long as it needs on a busy machine. Only where none is, or it answers nothing, it is given up soon.
var pluginTimes = map[string]plugin{
	"heard":        {firstWord: long, patience: 2 * long, again: 20 * time.Millisecond, departure: long},
	"given up":     {firstWord: time.Second, patience: 4 * time.Second, again: 20 * time.Millisecond, departure: 2 * time.Second},
	"falls silent": {firstWord: long, patience: 6 * time.Second, again: 20 * time.Millisecond, departure: 2 * time.Second},
}

func TestMain(m *testing.M) {
	if times := os.Getenv(asPlugin); times != "" {
		pluginTimes[times].main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// agent is what answers on the socket.
type agent struct {
	mu    sync.Mutex
	asked []Request
	add   func(ctx context.Context, r Request, working func()) Answer
}

func (a *agent) note(r Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r)
}

func (a *agent) requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Request{}, a.asked...)
}

func (a *agent) Add(ctx context.Context, r Request, working func()) Answer {
	a.note(r)
	return a.add(ctx, r, working)
}
func (a *agent) Del(_ context.Context, r Request) { a.note(r) }
func (a *agent) Check(ctx context.Context, r Request) Answer {
	a.note(r)
	return a.add(ctx, r, func() {})
}

func says(v Verdict, reason string) func(context.Context, Request, func()) Answer {
	return func(context.Context, Request, func()) Answer { return Answer{v, reason} }
}

// rig is a node with the plugin and what the agent left on it.
type rig struct {
	dir       string
	version   string
	namespace string
	uid       string
	entry     Entry
	times     string // see pluginTimes
}

func newRig(t *testing.T, enrolled ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{dir: dir, version: "1.0.0", namespace: "shop", uid: "u-1", times: "given up", entry: Entry{
		Type: Type, Socket: filepath.Join(dir, "cni.sock"), StateFile: filepath.Join(dir, "state"), AccessFile: filepath.Join(dir, "access"),
		MustStart: []string{"kube-system", "lateen-system"},
	}}
	if err := (State{EnrolledNamespaces: enrolled}).Save(r.entry.StateFile); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) serve(t *testing.T, a *agent) (stop func()) {
	t.Helper()
	s, err := Listen(r.entry.Socket, a, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return stop
}

const result = `{"interfaces":[{"name":"eth0","sandbox":"/run/netns/x"}],"ips":[{"address":"10.244.1.7/32","gateway":"10.244.1.1","interface":0%s}],"dns":{}}`

func (r *rig) prevResult() string {
	family := ""
	if strings.HasPrefix(r.version, "0.") {
		family = `,"version":"4"`
	}
	return fmt.Sprintf(`{"cniVersion":%q,`, r.version) + fmt.Sprintf(result, family)[1:]
}

// call runs the plugin as a runtime does.
func (r *rig) call(t *testing.T, command string) (stdout string, err error) {
	t.Helper()
	entry, err := json.Marshal(r.entry)
	if err != nil {
		t.Fatal(err)
	}
	stdin := fmt.Sprintf(`{"cniVersion":%q,"name":"dc","prevResult":%s,%s`, r.version, r.prevResult(), entry[1:])
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = []string{
		asPlugin + "=" + r.times, "CNI_COMMAND=" + command, "CNI_CONTAINERID=box1", "CNI_NETNS=/run/netns/x", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin",
		"CNI_NETNS_OVERRIDE=1",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + r.namespace + ";K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=box1;K8S_POD_UID=" + r.uid,
	}
	c.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	return out.String(), err
}

func (r *rig) passes(t *testing.T) {
	t.Helper()
	out, err := r.call(t, "ADD")
	if err != nil {
		t.Fatalf("the pod does not start: %v\n%s", err, out)
	}
	var got, want any
	if err := errors.Join(json.Unmarshal([]byte(out), &got), json.Unmarshal([]byte(r.prevResult()), &want)); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result of the plugins before is changed:\n%s", diff)
	}
}

func (r *rig) refuses(t *testing.T, reasons ...string) {
	t.Helper()
	out, err := r.call(t, "ADD")
	if err == nil {
		t.Fatalf("the pod starts: %s", out)
	}
	var e struct {
		Code         int
		Msg, Details string
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Code != 11 {
		t.Errorf("it is no error to be tried again: %s, %v", out, err)
	}
	for _, reason := range reasons {
		if !strings.Contains(e.Msg+e.Details, reason) {
			t.Errorf("%q is not in %s", reason, out)
		}
	}
}

func TestTheAgentDecides(t *testing.T) {
	for _, v := range Versions {
		r := newRig(t, "shop")
		r.version, r.times = v, "heard"
		a := &agent{add: says(Done, "")}
		r.serve(t, a)
		r.passes(t)
		want := []Request{{Op: Add, Namespace: "shop", Name: "web-1", UID: "u-1", Sandbox: "box1", NetNS: "/run/netns/x", Addresses: []string{"10.244.1.7"}}}
		if diff := cmp.Diff(want, a.requests()); diff != "" {
			t.Errorf("version %s: the agent was asked:\n%s", v, diff)
		}
	}
	r := newRig(t, "shop")
	r.times = "heard"
	r.serve(t, &agent{add: says(Outside, "")})
	r.passes(t)
}

func TestAPodThatCannotBeCapturedDoesNotStart(t *testing.T) {
	r := newRig(t)
	r.times = "heard"
	r.serve(t, &agent{add: says(Failed, "no node proxy is connected")})
	r.refuses(t, "no node proxy is connected", "shop/web-1")
	// The cluster's own pods start whatever happens: the node would not recover without them.
	for _, namespace := range r.entry.MustStart {
		r.namespace = namespace
		r.passes(t)
	}
}

func TestWithoutAgentOnlyPodsOfTheMeshWait(t *testing.T) {
	hangs := func(t *testing.T, r *rig) {
		l, err := net.Listen("unix", r.entry.Socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	closes := func(t *testing.T, r *rig) {
		l, err := net.Listen("unix", r.entry.Socket)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		})
		t.Cleanup(func() { l.Close(); all.Wait() })
	}
	for name, fail := range map[string]func(*testing.T, *rig){
		"down": func(*testing.T, *rig) {}, "hangs": hangs, "closes": closes,
		"cannot tell": func(t *testing.T, r *rig) { r.serve(t, &agent{add: says(Unknown, "the API server is away")}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "shop", "kube-system")
			fail(t, r)
			r.namespace = "elsewhere"
			r.passes(t)
			r.namespace = "kube-system"
			r.passes(t)
			r.namespace = "shop"
			r.refuses(t, "shop/web-1", "enrolled when the agent last ran")
		})
	}
}

// An agent that is being replaced is away for a moment.
func TestAPodWaitsForAnAgentThatComesBack(t *testing.T) {
	r := newRig(t, "shop")
	r.times = "heard"
	var all sync.WaitGroup
	all.Go(func() {
		time.Sleep(500 * time.Millisecond)
		r.serve(t, &agent{add: says(Done, "")})
	})
	r.passes(t)
	all.Wait()
}

// An agent that dies over a pod has said that it is of the mesh.
func TestAnAgentThatDiesOverAPodLetsNothingPass(t *testing.T) {
	r := newRig(t)
	r.times = "falls silent"
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var stop func()
	begun := make(chan struct{})
	var once sync.Once
	stop = r.serve(t, &agent{add: func(ctx context.Context, _ Request, working func()) Answer {
		working()
		once.Do(func() { close(begun) })
		<-ctx.Done()
		return Answer{Verdict: Unknown}
	}})
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-begun:
			time.Sleep(50 * time.Millisecond)
			stop()
		case <-ctx.Done():
		}
	})
	r.refuses(t, "shop/web-1")
	all.Wait()
}

// It may find the time to say that it cannot tell.
func TestAnAgentThatEndsOverAPodLetsNothingPass(t *testing.T) {
	r := newRig(t)
	r.times = "falls silent"
	r.serve(t, &agent{add: func(_ context.Context, _ Request, working func()) Answer {
		working()
		return Answer{Verdict: Unknown, Reason: "it ends"}
	}})
	r.refuses(t, "shop/web-1", "say the agent")
}

func TestAMeshThatHasLeftTheNodeStopsNobody(t *testing.T) {
	r := newRig(t, "shop")
	if err := os.Remove(r.entry.StateFile); err != nil {
		t.Fatal(err)
	}
	r.passes(t)
}

// A node that boots has no agent yet, and perhaps no API server: what ran on it then is known.
func TestWithoutAnybodyThePodsOfTheNodeAreKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		enrolled, excepted, wanted, refused bool
		uid                                 string
	}{
		"a pod of its own label in a namespace that is not enrolled": {enrolled: false, excepted: true, wanted: true, refused: true, uid: "u-1"},
		"a pod that stays out of an enrolled namespace":              {enrolled: true, excepted: true, wanted: false, refused: false, uid: "u-1"},
		"another pod of its name":                                    {enrolled: true, excepted: true, wanted: false, refused: true, uid: "u-0"},
		"a new pod of an enrolled namespace":                         {enrolled: true, refused: true},
		"a new pod of another namespace":                             {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var s State
			if tt.enrolled {
				s.EnrolledNamespaces = []string{"shop"}
			}
			if tt.excepted {
				s.Except("shop", "web-1", tt.uid, tt.wanted)
			}
			if err := s.Save(r.entry.StateFile); err != nil {
				t.Fatal(err)
			}
			if tt.refused {
				r.refuses(t, "when the agent last ran", "uninstall-cni")
				return
			}
			r.passes(t)
		})
	}
}

// api serves a pod and its namespace with labels.
func api(t *testing.T, r *rig, pod, namespace map[string]string) {
	t.Helper()
	apiOf(t, r, map[string]any{"uid": "u-1", "labels": pod}, namespace)
}

func apiOf(t *testing.T, r *rig, pod map[string]any, namespace map[string]string) {
	t.Helper()
	const token = "a-token"
	object := func(w http.ResponseWriter, meta map[string]any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": meta})
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.Header.Get("Authorization") != "Bearer "+token:
			http.Error(w, "who are you", http.StatusUnauthorized)
		case q.URL.Path == "/api/v1/namespaces/shop/pods/web-1":
			object(w, pod)
		case q.URL.Path == "/api/v1/namespaces/shop":
			object(w, map[string]any{"labels": namespace})
		default:
			http.NotFound(w, q)
		}
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := (Access{Server: s.URL, CA: string(ca), Token: token}).Save(r.entry.AccessFile); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(r.entry.AccessFile); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the token can be read by others: %v, %v", i.Mode(), err)
	}
}

func TestWithoutAgentTheAPIServersLabelsDecide(t *testing.T) {
	ambient := map[string]string{"istio.io/dataplane-mode": "ambient"}
	for name, tt := range map[string]struct {
		enrolled       []string
		pod, namespace map[string]string
		refused        bool
	}{
		"a pod that stays out of an enrolled namespace": {[]string{"shop"}, map[string]string{"istio.io/dataplane-mode": "none"}, ambient, false},
		"a pod that is enrolled alone":                  {nil, ambient, nil, true},
		"a namespace enrolled while the agent is away":  {nil, nil, ambient, true},
		"a namespace that has left meanwhile":           {[]string{"shop"}, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tt.enrolled...)
			api(t, r, tt.pod, tt.namespace)
			if tt.refused {
				r.refuses(t, "the API server's labels")
				return
			}
			r.passes(t)
		})
	}
}

// The answer is about the pod that is asked about only if that is what the runtime calls it.
func TestTheAPIServersPodIsTheRuntimesPod(t *testing.T) {
	const static = "0123456789abcdef0123456789abcdef"
	ambient := map[string]string{"istio.io/dataplane-mode": "ambient"}
	out := map[string]string{"istio.io/dataplane-mode": "none"}
	for name, tt := range map[string]struct {
		uid         string
		annotations map[string]string
		believed    bool
	}{
		"a static pod":                     {static, map[string]string{"kubernetes.io/config.hash": static, "kubernetes.io/config.mirror": static}, true},
		"one that only says so":            {static, map[string]string{"kubernetes.io/config.hash": static}, false},
		"one that says it is another":      {"u-1", map[string]string{"kubernetes.io/config.hash": "u-1"}, false},
		"one that says it mirrors another": {"u-1", map[string]string{"kubernetes.io/config.hash": "u-1", "kubernetes.io/config.mirror": "u-1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "shop")
			r.uid = tt.uid
			apiOf(t, r, map[string]any{"uid": "u-2", "labels": out, "annotations": tt.annotations}, ambient)
			if tt.believed {
				r.passes(t)
				return
			}
			r.refuses(t, "another pod of that name")
		})
	}
}

// What cannot be read must not let out what it might have named; and the cluster's own pods start all the same.
func TestADamagedStateLetsNothingPass(t *testing.T) {
	r := newRig(t)
	damage := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Pods outside are not to be stopped by it: there are two.
	damage(r.entry.StateFile)
	r.passes(t)
	damage(r.entry.StateFile + copyEnd)
	r.refuses(t, r.entry.StateFile)
	r.namespace = "kube-system"
	r.passes(t)
	// The next agent writes both.
	if err := (State{}).Save(r.entry.StateFile); err != nil {
		t.Fatal(err)
	}
	r.namespace = "shop"
	r.passes(t)
	if err := RemoveState(r.entry.StateFile); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(r.entry.StateFile + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTheOtherCommandsNeverDependOnTheAgent(t *testing.T) {
	r := newRig(t, "shop")
	r.version = "1.1.0"
	for _, command := range []string{"DEL", "CHECK", "STATUS", "GC", "VERSION"} {
		if out, err := r.call(t, command); err != nil {
			t.Errorf("%s without an agent: %v\n%s", command, err, out)
		}
	}
	r.times = "heard"
	a := &agent{add: says(Failed, "its rules are gone")}
	r.serve(t, a)
	if out, err := r.call(t, "CHECK"); err == nil || !strings.Contains(out, "its rules are gone") {
		t.Errorf("CHECK of a pod that is not captured: %v, %s", err, out)
	}
	if out, err := r.call(t, "DEL"); err != nil {
		t.Errorf("DEL: %v, %s", err, out)
	}
	if asked := a.requests(); len(asked) != 2 || asked[1].Op != Del || asked[1].Sandbox != "box1" {
		t.Errorf("the agent was asked %v", asked)
	}
}

func FuzzParse(f *testing.F) {
	r := &rig{version: "1.0.0"}
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"dc","type":"lateen-cni","socket":"/s","stateFile":"/f","prevResult":`+r.prevResult()+`}`), "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_UID=c")
	f.Add([]byte(`{"cniVersion":"0.3.1","type":"lateen-cni","socket":"/s","stateFile":"/f","mustStart":null,"prevResult":{"cniVersion":"0.3.1","ips":[{"version":"6","address":"fd00::1/64"}]}}`), "IgnoreUnknown=1;X=Y")
	f.Add([]byte(`{"socket":"s","stateFile":"f","prevResult":{"ips":[{"address":"x"}]}}`), ";")
	f.Add([]byte(`null`), "=")
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		c, err := parse(stdin)
		if err != nil {
			return
		}
		q, pod, err := request(Add, &skel.CmdArgs{ContainerID: "x", Netns: "/n", Args: args}, c)
		if err != nil {
			return
		}
		if pod && (q.Namespace == "" || q.Name == "") {
			t.Errorf("a pod without a name: %+v", q)
		}
		for _, a := range q.Addresses {
			if net.ParseIP(a) == nil {
				t.Errorf("%q is no address", a)
			}
		}
	})
}
