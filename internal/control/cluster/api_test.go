package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/kube/kubetest"
)

// api is an API server in memory that, unlike the library's, refuses an update of what has changed since it was read.
type api struct {
	*fake.Clientset
	away    atomic.Bool
	version atomic.Int64
	writes  atomic.Int64
	watches *kubetest.Watches
}

var errAway = errors.New("dial tcp 10.0.0.1:443: connect: connection refused")

func newAPI(objects ...runtime.Object) *api {
	a := &api{Clientset: fake.NewClientset(objects...)}
	a.PrependReactor("create", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		a.stamp(action.(kubetesting.CreateAction).GetObject())
		return false, nil, nil
	})
	a.PrependReactor("update", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		update := action.(kubetesting.UpdateAction)
		object, err := meta.Accessor(update.GetObject())
		if err != nil {
			return true, nil, err
		}
		gvr := action.GetResource()
		current, err := a.Tracker().Get(gvr, action.GetNamespace(), object.GetName())
		if err != nil {
			return true, nil, err
		}
		now, err := meta.Accessor(current)
		if err != nil {
			return true, nil, err
		}
		if v := object.GetResourceVersion(); v != "" && v != now.GetResourceVersion() {
			return true, nil, apierrors.NewConflict(gvr.GroupResource(), object.GetName(), errors.New("it has changed"))
		}
		a.stamp(update.GetObject())
		return false, nil, nil
	})
	a.PrependReactor("*", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
		if a.away.Load() {
			return true, nil, errAway
		}
		return false, nil, nil
	})
	a.watches = kubetest.Count(&a.Fake)
	return a
}

func (a *api) stamp(o runtime.Object) {
	a.writes.Add(1)
	if object, err := meta.Accessor(o); err == nil {
		object.SetResourceVersion(strconv.FormatInt(a.version.Add(1), 10))
		if object.GetUID() == "" {
			object.SetUID("uid")
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// said collects a log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *said) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }
