package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/xds"
)

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func newSources() Sources {
	return Sources{Store: model.NewStore(), Log: resourcelog.New(time.Now, resourcekind.Mesh), Version: "v1",
		Problems: func() []files.Problem { return nil }, Clients: func() []xds.ClientState { return nil },
		Ready: func() error { return nil }, Metrics: NewMetrics("v1", func() time.Time { return time.Unix(2000000000, 0) })}
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	s := newSources()
	var missing error
	s.Ready = func() error { return missing }
	h := Handler(s)
	if code, body := get(h, "/ready"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("%d %q", code, body)
	}
	missing = errors.New("the configuration directory has not been read yet")
	if code, body := get(h, "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "has not been read yet") {
		t.Errorf("%d %q", code, body)
	}
}

func TestPagesOfAnEmptyMeshAreEmptyLists(t *testing.T) {
	h := Handler(newSources())
	for _, path := range []string{"/debug/objects", "/debug/problems", "/debug/resources", "/debug/resources?type=address"} {
		if code, body := get(h, path); code != http.StatusOK || strings.TrimSpace(body) != "[]" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, body := get(h, "/debug/resources?type=Cluster"); code != http.StatusNotFound || !strings.Contains(body, resourcekind.Address) {
		t.Errorf("an unknown type: %d %q", code, body)
	}
	if code, _ := get(h, "/nothing"); code != http.StatusNotFound {
		t.Errorf("an unknown page: %d", code)
	}
}

// A proxy may have acknowledged all of the log and know nothing of an object that is not in it yet.
func TestNothingIsSaidOfWhatIsNotInTheLogYet(t *testing.T) {
	s := newSources()
	key := model.ServiceKey("shop", "web")
	generation, _ := s.Store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, JSON: []byte("{}")}}})
	s.Store.SetConditions(key, []model.Condition{{Type: "Accepted", Status: model.True}})
	h := Handler(s)
	if _, body := get(h, "/debug/objects"); strings.Contains(body, "Accepted") || !strings.Contains(body, `"digest": "44136fa355b3678a1146ad16f7e8649e"`) {
		t.Errorf("before it is in the log: %s", body)
	}
	s.Log.Append(generation, nil)
	if _, body := get(h, "/debug/objects"); !strings.Contains(body, "Accepted") {
		t.Errorf("when it is in the log: %s", body)
	}
}

// A refusal is said of the version that was refused, whatever arrives while it is read; and only of the object that it is about.
func TestARefusalIsSaidOfTheVersionThatWasRefused(t *testing.T) {
	key := model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: "a"}
	double := model.Key{Group: "example.com", Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
	resource := func(version string) *resourcelog.Resource {
		return &resourcelog.Resource{Name: "shop/a", Version: version, Sources: []resourcelog.Source{{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}}}
	}
	refused := refusing("n1", xds.Nack{Message: "shop/a: no", Names: []string{"shop/a"}})
	tests := map[string]struct {
		meanwhile func(s Sources) // after the clients were read
		said      bool
	}{
		"nothing happens":      {func(Sources) {}, true},
		"another one is taken": {func(s Sources) { put(s, model.ServiceKey("shop", "web"), "{}", nil, true) }, true},
		"the next version":     {func(s Sources) { put(s, key, `{"spec":{}}`, resource("2"), true) }, false},
		"not yet in the log":   {func(s Sources) { put(s, key, `{"spec":{}}`, resource("2"), false) }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSources()
			put(s, key, "{}", resource("1"), true)
			put(s, double, "{}", nil, true)
			s.Clients = func() []xds.ClientState {
				tt.meanwhile(s)
				return []xds.ClientState{refused}
			}
			for _, o := range s.objects(t.Context(), wanted(nil)) {
				said := slices.ContainsFunc(o.Conditions, func(c model.Condition) bool { return c.Reason == "RefusedByProxy" })
				if want := tt.said && o.Kind == key.Kind && o.APIVersion == key.Group; said != want {
					t.Errorf("%s %s/%s: it is said to be refused: %v", o.APIVersion, o.Namespace, o.Name, said)
				}
			}
		})
	}
}

// Whatever holds of the version before, an object whose present version is not taken says of that one that it is not; also where nothing is in force.
func TestWhatIsNotTakenIsSaidOfThePresentVersion(t *testing.T) {
	s := newSources()
	key := func(name string) model.Key {
		return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: name}
	}
	for _, name := range []string{"before", "good"} {
		put(s, key(name), "{}", nil, true)
		s.Store.SetConditions(key(name), []model.Condition{{Type: "Accepted", Status: model.True}})
	}
	s.Together = func(context.Context) func(*model.Object) (model.Condition, bool) {
		return func(*model.Object) (model.Condition, bool) {
			return model.Condition{Type: "lateen.dev/Programmed", Status: model.True}, true
		}
	}
	s.Refused = func() (out []Refused) {
		for _, name := range []string{"never", "before"} {
			out = append(out, Refused{key(name), "security.istio.io/v1", 7, []model.Condition{{Type: "Accepted", Status: model.False}, {Type: "lateen.dev/Programmed", Status: model.False, Reason: "StandIn"}}})
		}
		return out
	}
	var said []string
	for _, o := range s.objects(t.Context(), wanted(nil)) {
		said = append(said, fmt.Sprint(o.Name, " ", o.Observed))
		for _, c := range o.Conditions {
			said = append(said, fmt.Sprint(c.Type, "=", c.Status, c.Reason))
		}
	}
	const want = "before 7, Accepted=False, lateen.dev/Programmed=FalseStandIn, good 0, Accepted=True, lateen.dev/Programmed=True, never 7, Accepted=False, lateen.dev/Programmed=FalseStandIn"
	if got := strings.Join(said, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := s.objects(t.Context(), wanted(url.Values{"name": {"good"}})); len(got) != 1 || got[0].Name != "good" {
		t.Errorf("asked about one: %+v", got)
	}
}

// A condition that follows from a change of another object is not in the log before that change is.
func TestAConditionIsSaidOnceItsGenerationIsInTheLog(t *testing.T) {
	s := newSources()
	key := model.ServiceKey("shop", "web")
	put(s, key, "{}", nil, true)
	next := s.Log.Generation() + 1
	s.Store.SetConditions(key, []model.Condition{{Type: "Accepted", Status: model.True, Generation: next}})
	if got := s.objects(t.Context(), wanted(nil))[0].Conditions; len(got) != 0 {
		t.Errorf("before it is in the log: %+v", got)
	}
	s.Log.Append(next, nil)
	if got := s.objects(t.Context(), wanted(nil))[0].Conditions; len(got) != 1 {
		t.Errorf("when it is in the log: %+v", got)
	}
}

// put makes an object live, and what was made of it unless that is still under way.
func put(s Sources, key model.Key, json string, made *resourcelog.Resource, done bool) {
	generation, _ := s.Store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, APIVersion: key.Group, JSON: []byte(json)}}})
	if !done {
		return
	}
	var changes []resourcelog.Change
	if made != nil {
		changes = append(changes, resourcelog.Change{Type: resourcekind.Authorization, Name: made.Name, Resource: made})
	}
	s.Log.Append(generation, changes)
}

func TestMetricsCountWhatTheyAreToldOf(t *testing.T) {
	s := newSources()
	m := s.Metrics
	m.RegisterState(func() float64 { return 7 }, func() float64 { return 3 }, func() float64 { return 2 }, func(string) float64 { return 5 })
	m.Connected(2)
	m.Connected(-1)
	m.Sent(resourcekind.Address, 100, 4)
	m.Settled(resourcekind.Address, 20*time.Millisecond, false)
	m.Settled(resourcekind.Authorization, 0, true)
	m.Issued()
	m.Refused("unauthenticated")
	m.Refused("not_on_node")
	m.Compiled(time.Millisecond)
	_, body := get(Handler(s), "/metrics")
	for _, want := range []string{
		`pilot_xds{version="v1"} 1`, `pilot_xds_pushes{type="wds"} 1`, `pilot_xds_pushes{type="wads"} 0`, `pilot_total_xds_rejects{type="wads"} 1`,
		`lateen_control_push_bytes_total{type="wds"} 100`, `lateen_control_push_resources_total{type="wds"} 4`, `lateen_control_answers_total{type="wads"} 1`,
		`pilot_proxy_convergence_time_count 1`, `citadel_server_csr_count 3`, `citadel_server_success_cert_issuance_count 1`,
		`citadel_server_authentication_failure_count 1`, `lateen_control_certificates_refused_total{reason="not_on_node"} 1`,
		`citadel_server_root_cert_expiry_timestamp 2e+09`, `lateen_control_generation 7`, `lateen_control_objects 3`, `lateen_control_problems 2`,
		`lateen_control_resources{type="wads"} 5`, `lateen_control_compile_seconds_count 1`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

func TestTheObjectsPageIsNarrowedDown(t *testing.T) {
	s := newSources()
	for _, key := range []model.Key{model.ServiceKey("shop", "web"), model.ServiceKey("shop", "db"), model.ServiceKey("other", "web"), model.PodKey("shop", "web")} {
		put(s, key, "{}", nil, true)
	}
	h := Handler(s)
	for query, want := range map[string]int{"": 4, "?kind=Service": 3, "?kind=service&namespace=shop": 2, "?name=web": 3, "?kind=Service&namespace=shop&name=web": 1, "?name=nobody": 0, "?kind=&name=": 4} {
		code, text := get(h, "/debug/objects"+query)
		if n := strings.Count(text, `"kind":`); code != http.StatusOK || n != want {
			t.Errorf("%q: %d with %d objects, want %d", query, code, n, want)
		}
	}
}

func TestThePageOfTheMeshNamesTheRootNamespace(t *testing.T) {
	s := newSources()
	s.RootNamespace = "mesh-root"
	if code, body := get(Handler(s), "/debug/mesh"); code != http.StatusOK || !strings.Contains(body, `"rootNamespace": "mesh-root"`) {
		t.Errorf("%d %s", code, body)
	}
}

// On Kubernetes the conditions of the MeshConfig are among the problems as well, since a ConfigMap has no status.
func TestAnObjectDoesNotTellAWarningTwice(t *testing.T) {
	s := newSources()
	key := model.Key{Kind: "ConfigMap", Namespace: "istio-system", Name: "istio"}
	generation, _ := s.Store.Apply([]model.Change{{Key: key, Object: &model.Object{Key: key, JSON: []byte("{}")}}})
	s.Store.SetConditions(key, []model.Condition{{Type: "Accepted", Status: model.True, Reason: "UnsupportedValue", Message: "no proxy goes by it"}})
	s.Log.Append(generation, nil)
	told := files.Problem{Object: key.String(), Severity: files.Warning, Message: "no proxy goes by it"}
	other, refused := told, told
	other.Message, refused.Severity = "something else", files.Refused
	s.Problems = func() []files.Problem { return []files.Problem{told, other, refused} }
	s.found = &findings{}
	objects := s.objects(t.Context(), wanted(nil))
	if len(objects) != 1 || len(objects[0].Conditions) != 1 || !slices.Equal(objects[0].Problems, []files.Problem{other, refused}) {
		t.Errorf("got %+v", objects)
	}
	if _, body := get(Handler(s), "/debug/problems"); strings.Count(body, "no proxy goes by it") != 2 {
		t.Errorf("the page of problems has them all: %s", body)
	}
}
