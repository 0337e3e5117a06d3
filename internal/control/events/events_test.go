package events

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	kubesource "lateen.dev/lateen/internal/source/kube"
)

var settings = model.Key{Kind: "ConfigMap", Namespace: "istio-system", Name: "istio"}

// rig is an API server in memory, a store and a writer that leads until the test ends.
type rig struct {
	t      *testing.T
	store  *model.Store
	writer *Writer
	log    bytes.Buffer

	mu      sync.Mutex
	refused *kubesource.Refused
	fail    error
	written []*corev1.Event
}

// run has a test work with a writer, in a time of its own.
func run(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, store: model.NewStore()}
		client := fake.NewClientset()
		client.PrependReactor("create", "events", func(a kubetesting.Action) (bool, runtime.Object, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return true, nil, r.fail
			}
			r.written = append(r.written, a.(kubetesting.CreateAction).GetObject().(*corev1.Event))
			return false, nil, nil
		})
		r.writer = New(Options{Client: client.CoreV1(), Object: settings, Store: r.store, Instance: "control-1", Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Now: time.Now,
			Refusal: func(model.Key) (kubesource.Refused, bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.refused == nil {
					return kubesource.Refused{}, false
				}
				return *r.refused, true
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.writer.Lead(ctx) }()
		test(r)
		cancel()
		<-done
	})
}

// put puts the object into the store with a condition.
func (r *rig) put(uid, reason, message string) {
	r.store.Apply([]model.Change{{Key: settings, Object: &model.Object{Key: settings, Value: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}}}})
	r.store.SetConditions(settings, []model.Condition{{Type: "Accepted", Status: model.True, Reason: reason, Message: message}})
}

// says waits for a while and compares what was written since the last time, as "type reason: message".
func (r *rig) says(after time.Duration, want ...string) {
	r.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, e := range r.written {
		got = append(got, e.Type+" "+e.Reason+": "+e.Message)
	}
	r.written = nil
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		r.t.Errorf("written %q, want %q", got, want)
	}
}

const ignored = "Warning UnsupportedValue: no proxy of this mesh goes by enableTracing"

func TestAFieldThatNobodyGoesByIsAnEventOfTheConfigMap(t *testing.T) {
	run(t, func(r *rig) {
		r.put("c-1", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		time.Sleep(time.Second)
		synctest.Wait()
		r.mu.Lock()
		e := r.written[0]
		r.mu.Unlock()
		if e.Namespace != "istio-system" || e.InvolvedObject.Kind != "ConfigMap" || e.InvolvedObject.Name != "istio" || e.InvolvedObject.UID != "c-1" || e.ReportingController != wellknown.ReportingControl ||
			e.ReportingInstance != "control-1" || !strings.HasPrefix(e.Name, "istio.") {
			t.Errorf("%+v", e)
		}
		r.says(0, ignored)
	})
}

func TestSettingsWithoutAButAreNoEvent(t *testing.T) {
	run(t, func(r *rig) {
		r.says(time.Hour)
		r.put("c-1", "Accepted", "the object is accepted as it is written")
		r.says(2 * time.Hour)
	})
}

// API servers forget an Event after an hour, and the object still has no status.
func TestAnEventIsWrittenAgainWhileItsCauseLasts(t *testing.T) {
	run(t, func(r *rig) {
		r.put("c-1", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		r.says(time.Second, ignored)
		r.put("c-1", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		r.says(40 * time.Minute)
		r.says(10*time.Minute, ignored)
		r.put("c-1", "Accepted", "the object is accepted as it is written")
		r.says(time.Second, "Normal Accepted: the object is accepted as it is written")
		r.says(2 * time.Hour)
		r.store.Apply([]model.Change{{Key: settings}})
		r.says(2 * time.Hour)
	})
}

func TestAnotherObjectOfTheNameIsToldAnew(t *testing.T) {
	run(t, func(r *rig) {
		r.put("c-1", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		r.says(time.Second, ignored)
		r.put("c-2", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		r.says(leastPause, ignored)
		r.put("c-3", "Accepted", "the object is accepted as it is written")
		r.says(time.Hour)
	})
}

func TestManyChangesAreFewEvents(t *testing.T) {
	run(t, func(r *rig) {
		for i := range 60 {
			r.put("c-1", "UnsupportedValue", strings.Repeat("x", i+1))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.written); n < 6 || n > 7 {
			t.Errorf("%d Events within a minute", n)
		}
		r.written = nil
	})
}

func TestARefusedVersionIsAnEvent(t *testing.T) {
	run(t, func(r *rig) {
		r.says(0)
		r.mu.Lock()
		r.refused = &kubesource.Refused{Key: settings, UID: "c-9", Condition: model.Condition{Reason: "Invalid", Message: "data.mesh: it is no YAML"}}
		r.mu.Unlock()
		r.writer.Judged(model.ServiceKey("shop", "web"))
		r.says(time.Second)
		r.writer.Judged(settings)
		r.says(time.Second, "Warning Invalid: data.mesh: it is no YAML")
	})
}

func TestAnEventThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	run(t, func(r *rig) {
		r.mu.Lock()
		r.fail = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		r.mu.Unlock()
		r.put("c-1", "UnsupportedValue", "no proxy of this mesh goes by enableTracing")
		r.says(3 * time.Minute)
		if n := strings.Count(r.log.String(), "it may not create events"); n != 1 {
			t.Errorf("logged %d times: %s", n, r.log.String())
		}
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		r.says(retryAfter, ignored)
	})
}

func TestALongMessageIsCutAtALetter(t *testing.T) {
	run(t, func(r *rig) {
		r.put("c-1", "UnsupportedValue", strings.Repeat("ü", longestNote))
		r.says(time.Second, "Warning UnsupportedValue: "+strings.Repeat("ü", (longestNote-3)/2)+"…")
	})
}
