package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
)

// elsewhere are the requests that Kubernetes' own command answers.
var elsewhere = []struct{ pattern, what, fix string }{
	{"GET /v1/usage", "what the parts use is told by the cluster's own metrics", "kubectl top pod -n lateen-system --containers"},
	{"POST /v1/exec", "commands in pods are run by kubectl", "kubectl exec -it POD -- COMMAND"},
	{"POST /v1/connect", "ports of pods are forwarded by kubectl", "kubectl port-forward POD PORT"},
	{"GET /v1/capture", "packets between a cluster's nodes cannot be recorded from here", "run tcpdump on a node"},
	{"GET /v1/capture.pcap", "packets between a cluster's nodes cannot be recorded from here", "run tcpdump on a node"},
	{"POST /v1/down", "a cluster's mesh does not go down, it is removed", "lateen uninstall"},
	{"POST /v1/nodes/{node}/proxy/replace", "a cluster's node proxies are replaced by an upgrade, or by a rollout", "kubectl rollout restart daemonset/lateen-node -n lateen-system"},
}

func (e *Engine) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/version", answers(func(r *http.Request) (any, error) { return e.version(r.Context()) }))
	m.HandleFunc("GET /v1/status", answers(func(r *http.Request) (any, error) { return e.status(r.Context()) }))
	m.HandleFunc("GET /v1/objects", answers(e.objects))
	m.HandleFunc("POST /v1/patch", e.patch)
	m.HandleFunc("GET /v1/nodes/{node}/proxy/metrics", e.onProxy(proxyMetrics, http.MethodGet, "/metrics"))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/config_dump", e.onProxy(proxyPages, http.MethodGet, "/config_dump"))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/pods", e.onProxy(proxyPages, http.MethodGet, "/pods"))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/connections", e.onProxy(proxyPages, http.MethodGet, "/connections"))
	m.HandleFunc("GET /v1/pods/{namespace}/{pod}/proxy/connections", e.onWaypoint)
	m.HandleFunc("POST /v1/nodes/{node}/proxy/logging", e.onProxy(proxyPages, http.MethodPost, "/logging"))
	m.HandleFunc("GET /v1/nodes/{node}/proxy/log", e.log("node"))
	m.HandleFunc("GET /v1/nodes/{node}/agent/log", e.log("agent"))
	m.HandleFunc("GET /v1/control/log", e.log("control"))
	m.HandleFunc("GET /v1/control/debug/ca", answers(func(r *http.Request) (any, error) { return e.authority(r.Context()) }))
	m.HandleFunc("GET /v1/control/{page...}", e.onControl)
	m.HandleFunc("POST /v1/ca/rotate", answers(func(r *http.Request) (any, error) { return struct{}{}, e.rotate(r.Context()) }))
	m.HandleFunc("GET /v1/nodes/{node}/agent/status", refuse("what an agent knows of its pods is told on its node alone", "kubectl logs -n lateen-system -l app=lateen-agent; `lateen status` shows what it made of them"))
	m.HandleFunc("POST /v1/apply", toKubectl("objects of a cluster are applied by kubectl", kubectlApply))
	m.HandleFunc("POST /v1/delete", toKubectl("objects of a cluster are deleted by kubectl", kubectlDelete))
	m.HandleFunc("GET /v1/logs", func(w http.ResponseWriter, r *http.Request) {
		fail(w, kubectl("logs of pods are shown by kubectl", kubectlLogs(r.URL.Query())))
	})
	for _, x := range elsewhere {
		m.HandleFunc(x.pattern, refuse(x.what, x.fix))
	}
	return m
}

func refuse(what, fix string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &api.Error{Code: http.StatusNotImplemented, Message: what, Fix: fix})
	}
}

func answers(act func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := act(r)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the asker may be gone
	}
}

func fail(w http.ResponseWriter, err error) {
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: http.StatusBadGateway, Message: err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code)
	_ = json.NewEncoder(w).Encode(e) // the asker may be gone
}

// refused gives an answer of the API server a fix.
func (e *Engine) refused(err error) error {
	why, fix := kube.Unusable(err)
	switch {
	case why != "":
		return &api.Error{Code: http.StatusBadGateway, Message: "the API server at " + e.Host + " cannot be asked: " + why, Fix: fix}
	case apierrors.IsForbidden(err):
		return &api.Error{Code: http.StatusForbidden, Message: "the API server refuses: " + kube.Cause(err), Fix: "have an administrator grant the right that is named"}
	case kube.Away(err):
		return &api.Error{Code: http.StatusServiceUnavailable, Message: "the API server at " + e.Host + " cannot be reached: " + kube.Cause(err), Fix: "see that the cluster runs and that this machine reaches it (kubectl cluster-info)"}
	case apierrors.IsNotFound(err):
		return &api.Error{Code: http.StatusNotFound, Message: kube.Cause(err), Fix: "`lateen get all -A` lists what there is"}
	}
	return err
}

func unwrapped(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// onProxy passes on a page of a node's proxy, for as long as it has something to say.
func (e *Engine) onProxy(port int, method, path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := e.onNode(r.Context(), "node", r.PathValue("node"))
		if err != nil {
			fail(w, err)
			return
		}
		to := path
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		resp, err := e.page(r.Context(), p, port, method, to)
		if err != nil {
			fail(w, err)
			return
		}
		defer resp.Body.Close()
		pass(w, resp.Body)
	}
}

// onWaypoint passes on what a waypoint's pod says about the connections of its clients.
func (e *Engine) onWaypoint(w http.ResponseWriter, r *http.Request) {
	p, err := e.Client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	switch {
	case err != nil:
		fail(w, e.refused(err))
		return
	case p.Labels[wellknown.GatewayName] == "": // another pod may have anything on the port of the pages
		fail(w, api.NoWaypoint(p.Namespace, p.Name))
		return
	}
	resp, err := e.page(r.Context(), p, proxyPages, http.MethodGet, "/connections?"+r.URL.RawQuery)
	if err != nil {
		fail(w, err)
		return
	}
	defer resp.Body.Close()
	pass(w, resp.Body)
}

// pass copies what comes at once.
func pass(w http.ResponseWriter, from io.Reader) {
	flush := http.NewResponseController(w)
	part := make([]byte, 32<<10)
	for {
		n, err := from.Read(part)
		if n > 0 {
			if _, err := w.Write(part[:n]); err != nil || flush.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// onControl answers with a page of the control plane: of a replica that is ready.
func (e *Engine) onControl(w http.ResponseWriter, r *http.Request) {
	path := "/" + r.PathValue("page")
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	p, err := e.replica(r.Context())
	if err == nil {
		var b []byte
		if b, _, err = e.read(r.Context(), p, controlPages, path); err == nil {
			_, _ = w.Write(b)
			return
		}
	}
	fail(w, err)
}

// replica is one of the control plane's that is ready.
func (e *Engine) replica(ctx context.Context) (*corev1.Pod, error) {
	pods, err := e.pods(ctx, "control")
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if ready(&pods[i]) {
			return &pods[i], nil
		}
	}
	return nil, &api.Error{Code: http.StatusServiceUnavailable, Message: "no replica of the control plane is ready", Fix: "see why with kubectl describe deployment -n " + e.Namespace + " lateen-control, and `lateen check`"}
}

// speaker is the replica whose log is shown: one that is ready, else the newest. Why none is ready is what the log is wanted for.
func (e *Engine) speaker(ctx context.Context) (*corev1.Pod, error) {
	p, err := e.replica(ctx)
	if err == nil {
		return p, nil
	}
	if pods, listed := e.pods(ctx, "control"); listed == nil && len(pods) > 0 {
		return &pods[0], nil
	}
	return nil, err
}

// log shows what a part wrote.
func (e *Engine) log(component string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var p *corev1.Pod
		var err error
		if component == "control" {
			p, err = e.speaker(r.Context())
		} else {
			p, err = e.onNode(r.Context(), component, r.PathValue("node"))
		}
		if err != nil {
			fail(w, err)
			return
		}
		q := r.URL.Query()
		o := &corev1.PodLogOptions{Follow: q.Get("follow") == "true", Previous: q.Get("previous") == "true", Timestamps: q.Get("timestamps") == "true", SinceTime: since(q)}
		if n, err := strconv.ParseInt(q.Get("tail"), 10, 64); err == nil {
			o.TailLines = &n
		}
		body, err := e.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, o).Stream(r.Context())
		if err != nil {
			fail(w, e.refused(err))
			return
		}
		defer body.Close()
		pass(w, body)
	}
}

// onVersion is a request's patch, bound to the version of the object that the request names. A request that names none is not bound. The error
// has the code 409 if the object is another version.
func onVersion(in api.PatchRequest, object metav1.Object) (json.RawMessage, error) {
	if in.UID == "" && in.Generation == 0 {
		return in.Patch, nil
	}
	if in.UID != "" && in.UID != string(object.GetUID()) || in.Generation != 0 && in.Generation != object.GetGeneration() {
		return nil, &api.Error{Code: http.StatusConflict, Message: in.Key.String() + " was changed by another command since it was read", Fix: "read it again and repeat the change"}
	}
	var patch struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(in.Patch, &patch); err != nil {
		return nil, &api.Error{Code: http.StatusBadRequest, Message: "read the patch: " + err.Error()}
	}
	patch.Metadata["resourceVersion"] = object.GetResourceVersion() // the API server refuses it if the object changes now
	return json.Marshal(patch)
}

// patch changes the labels of an object; all else is kubectl's.
func (e *Engine) patch(w http.ResponseWriter, r *http.Request) {
	var in api.PatchRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "read the request: " + err.Error()})
		return
	}
	if !strings.HasPrefix(string(in.Patch), `{"metadata":{"labels":`) {
		fail(w, kubectl("objects of a cluster are changed by kubectl", kubectlPatch(in)))
		return
	}
	group, err := e.only(r.Context(), in.Key)
	if err != nil {
		fail(w, err)
		return
	}
	if api.NamedGroup(in.Key.Kind) != "" {
		group = "" // the word for the kind has it
	}
	client, _, err := e.kind(inGroup(in.Key.Kind, group), in.Key.Namespace, false)
	if err != nil {
		fail(w, err)
		return
	}
	before, err := client.Get(r.Context(), in.Key.Name, metav1.GetOptions{})
	if err == nil {
		if in.Patch, err = onVersion(in, before); err != nil {
			fail(w, err)
			return
		}
		options := metav1.PatchOptions{FieldManager: "lateen"}
		if in.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		after, patched := client.Patch(r.Context(), in.Key.Name, types.MergePatchType, in.Patch, options)
		if err = patched; err == nil {
			result := api.ObjectResult{Key: in.Key, Action: api.Configured}
			if after.GetResourceVersion() == before.GetResourceVersion() {
				result.Action = api.Unchanged
			}
			answers(func(*http.Request) (any, error) { return result, nil })(w, r)
			return
		}
	}
	fail(w, e.refused(err))
}
