package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// apiServer is as much of an API server as a source needs: lists, watches that begin with a list, discovery and refusals. tests/kube has
// the real one.
type apiServer struct {
	t    *testing.T
	http *httptest.Server
	addr string

	mu       sync.Mutex
	version  int
	served   map[string]string            // "group/version" and resource, "security.istio.io/v1/authorizationpolicies" → kind
	objects  map[string]map[string]object // resource with group → "namespace/name" → object
	watchers map[chan event]string        // → resource with group
	refuse   map[string]int               // resource with group, and verb, "pods list" → HTTP status
	asked    map[string]int               // the same → how often
	lists    bool                         // it does not list by watching, as older ones
	// remembered counts lists that may be answered with an old state.
	remembered int
}

type object = map[string]any

// silence is a refusal that never comes.
const silence = -1

type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

var coreServed = map[string]string{"v1/namespaces": "Namespace", "v1/nodes": "Node", "v1/services": "Service", "v1/pods": "Pod",
	"discovery.k8s.io/v1/endpointslices": "EndpointSlice", "apiextensions.k8s.io/v1/customresourcedefinitions": "CustomResourceDefinition"}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{t: t, served: maps.Clone(coreServed), objects: map[string]map[string]object{}, watchers: map[chan event]string{}, refuse: map[string]int{}, asked: map[string]int{}}
	a.start(lastingAddress(t))
	t.Cleanup(a.stop)
	return a
}

// lastingAddress is one that stays free while the server is away: none of the ports that the kernel gives to whoever asks.
func lastingAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := "127.0.0.1:" + strconv.Itoa(20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close() //nolint:errcheck // it was never used
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

func (a *apiServer) start(address string) {
	a.t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.addr = listener.Addr().String()
	a.http = httptest.NewUnstartedServer(a)
	a.http.Listener.Close() //nolint:errcheck // it was never used
	a.http.Listener = listener
	a.http.Start()
}

// stop makes the server go away; what it holds stays for the next start.
func (a *apiServer) stop() {
	if a.http == nil {
		return
	}
	// A watch that begins after the connections were closed would keep Close waiting: it waits for every request that is being answered.
	closed := make(chan struct{})
	go func() {
		a.http.Close()
		close(closed)
	}()
	for open := true; open; {
		a.http.CloseClientConnections()
		select {
		case <-closed:
			open = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	a.http = nil
}

func (a *apiServer) config() *rest.Config { return &rest.Config{Host: "http://" + a.addr} }

// define serves a custom kind, with its definition.
func (a *apiServer) define(group, resource, kind string, versions ...string) {
	for _, v := range versions {
		a.mu.Lock()
		a.served[group+"/"+v+"/"+resource] = kind
		a.mu.Unlock()
	}
	a.put("customresourcedefinitions.apiextensions.k8s.io", object{"metadata": object{"name": resource + "." + group}})
}

// unserve ends the serving of a kind, and leaves its definition.
func (a *apiServer) unserve(group, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for gvr := range a.served {
		if strings.HasPrefix(gvr, group+"/") && strings.HasSuffix(gvr, "/"+resource) {
			delete(a.served, gvr)
		}
	}
	for w, r := range a.watchers {
		if r == resource+"."+group {
			close(w)
			delete(a.watchers, w)
		}
	}
}

func (a *apiServer) set(what string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse[what] = code; code == 0 {
		delete(a.refuse, what)
	}
}

func (a *apiServer) times(what string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[what]
}

// put creates or replaces an object. A new one gets a uid of its own.
func (a *apiServer) put(resource string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	meta := o["metadata"].(object)
	key := fmt.Sprint(meta["namespace"], "/", meta["name"])
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]object{}
	}
	kind := "MODIFIED"
	a.version++
	if old, ok := a.objects[resource][key]; ok {
		meta["uid"] = old["metadata"].(object)["uid"]
	} else {
		kind = "ADDED"
		meta["uid"] = fmt.Sprint("uid-", a.version)
	}
	if meta["generation"] == nil {
		meta["generation"] = a.version
	}
	meta["resourceVersion"] = strconv.Itoa(a.version)
	a.objects[resource][key] = o
	a.tell(resource, event{kind, o})
}

func (a *apiServer) delete(resource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ns any
	if namespace != "" {
		ns = namespace
	}
	key := fmt.Sprint(ns, "/", name)
	o := a.objects[resource][key]
	if o == nil {
		a.t.Errorf("there is no %s %s", resource, key)
		return
	}
	delete(a.objects[resource], key)
	a.version++
	o = maps.Clone(o) // others may be writing it to a watch
	meta := maps.Clone(o["metadata"].(object))
	meta["resourceVersion"] = strconv.Itoa(a.version)
	o["metadata"] = meta
	a.tell(resource, event{"DELETED", o})
}

func (a *apiServer) tell(resource string, e event) {
	for w, r := range a.watchers {
		if r == resource {
			w <- e
		}
	}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/")
	if version, rest, namespaced := strings.Cut(path, "/namespaces/"); namespaced {
		_, resource, _ := strings.Cut(rest, "/")
		path = version + "/" + resource + " of one namespace"
	}
	a.mu.Lock()
	kind, known := a.served[path]
	at := strings.LastIndexByte(path, '/')
	apiVersion, resource := path, ""
	if known {
		apiVersion, resource = path[:at], path[at+1:]
	}
	full := resource
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		full += "." + group
	}
	verb := "list"
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	if !known {
		full = "missing"
	}
	a.asked[full+" "+verb]++
	if verb == "list" && r.URL.Query().Get("resourceVersion") == "0" {
		a.remembered++
	}
	code := a.refuse[full+" "+verb]
	if c := a.refuse["*"]; c != 0 {
		code = c
	}
	if verb == "watch" && r.URL.Query().Get("sendInitialEvents") != "" && a.lists {
		code = http.StatusUnprocessableEntity
	}
	a.mu.Unlock()
	switch {
	case code == silence:
		<-r.Context().Done()
	case code != 0:
		a.refusal(w, code)
	case !known:
		a.discovery(w, path)
	case verb == "watch":
		a.watch(w, r, apiVersion, kind, full)
	default:
		a.list(w, apiVersion, kind, full, r.URL.Query().Get("labelSelector"))
	}
}

func (a *apiServer) refusal(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 422: metav1.StatusReasonInvalid, 401: metav1.StatusReasonUnauthorized}[code]
	a.answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "no"})
}

func (a *apiServer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}

func (a *apiServer) discovery(w http.ResponseWriter, gv string) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
	a.mu.Lock()
	for gvr, kind := range a.served {
		if resource, ok := strings.CutPrefix(gvr, gv+"/"); ok && !strings.Contains(resource, "/") {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: kind, Verbs: []string{"list", "watch"}})
		}
	}
	a.mu.Unlock()
	if len(list.APIResources) == 0 {
		a.refusal(w, http.StatusNotFound)
		return
	}
	a.answer(w, http.StatusOK, list)
}

// render is an object as one version of its kind.
func render(o object, apiVersion, kind string) object {
	o = maps.Clone(o)
	o["apiVersion"], o["kind"] = apiVersion, kind
	if kind == "CustomResourceDefinition" { // only their metadata is asked for here
		o["apiVersion"], o["kind"] = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	return o
}

func (a *apiServer) matching(full, selector string) []object {
	match, err := labels.Parse(selector)
	if err != nil {
		a.t.Errorf("label selector: %v", err)
	}
	var out []object
	for _, key := range slices.Sorted(maps.Keys(a.objects[full])) {
		if o := a.objects[full][key]; match.Matches(labelsOf(o)) {
			out = append(out, o)
		}
	}
	return out
}

func labelsOf(o object) labels.Set {
	set := labels.Set{}
	if l, ok := o["metadata"].(object)["labels"].(object); ok {
		for k, v := range l {
			set[k] = fmt.Sprint(v)
		}
	}
	return set
}

func (a *apiServer) list(w http.ResponseWriter, apiVersion, kind, full, selector string) {
	a.mu.Lock()
	items := []object{}
	for _, o := range a.matching(full, selector) {
		items = append(items, render(o, apiVersion, kind))
	}
	version := strconv.Itoa(a.version)
	a.mu.Unlock()
	list := render(object{"metadata": object{"resourceVersion": version}, "items": items}, apiVersion, kind)
	list["kind"] = list["kind"].(string) + "List"
	a.answer(w, http.StatusOK, list)
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, apiVersion, kind, full string) {
	query := r.URL.Query()
	selector, _ := labels.Parse(query.Get("labelSelector"))
	events := make(chan event, 1024)
	a.mu.Lock()
	switch from := query.Get("resourceVersion"); {
	case query.Get("sendInitialEvents") != "":
		for _, o := range a.matching(full, query.Get("labelSelector")) {
			events <- event{"ADDED", o}
		}
		events <- event{"BOOKMARK", object{"metadata": object{"resourceVersion": strconv.Itoa(a.version), "annotations": object{metav1.InitialEventsAnnotationKey: "true"}}}}
	case from != strconv.Itoa(a.version):
		// It keeps no history.
		events <- event{"ERROR", object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}}
	}
	a.watchers[events] = full
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, events)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	flusher, encoder := w.(http.Flusher), json.NewEncoder(w)
	flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			switch {
			case e.Type == "ERROR":
			case e.Type != "BOOKMARK" && !selector.Matches(labelsOf(e.Object)):
				continue
			default:
				e.Object = render(e.Object, apiVersion, kind)
			}
			if err := encoder.Encode(e); err != nil {
				return
			}
			flusher.Flush()
			if e.Type == "ERROR" {
				return
			}
		}
	}
}
