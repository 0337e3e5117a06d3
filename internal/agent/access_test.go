package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/agent/apiserver/apiservertest"
	"lateen.dev/lateen/internal/agent/cni"
)

// The plugin's token is of an account of its own, bound to no pod, and renewed in time.
func TestThePluginsTokenOutlivesTheAgent(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	asked, refusal := 0, error(nil)
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action k8stesting.Action) (bool, runtime.Object, error) {
		c, ok := action.(k8stesting.CreateActionImpl)
		if !ok || c.GetSubresource() != "token" || c.Name != "lateen-cni" || c.GetNamespace() != "lateen-system" {
			t.Errorf("asked for %+v", action)
		}
		spec := c.GetObject().(*authenticationv1.TokenRequest).Spec
		if spec.BoundObjectRef != nil || len(spec.Audiences) > 0 || spec.ExpirationSeconds == nil {
			t.Errorf("asked for a token with %+v", spec)
		}
		asked++
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: fmt.Sprint("token-", asked), ExpirationTimestamp: metav1.NewTime(now.Add(time.Hour)),
		}}, refusal
	})
	a := &access{
		config: &rest.Config{Host: "10.0.0.1:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("roots")}, BearerToken: "the agent's own"},
		client: apiservertest.Over(client), namespace: "lateen-system", account: "lateen-cni", file: filepath.Join(t.TempDir(), "access"), log: slog.New(slog.DiscardHandler),
	}
	read := func() (got cni.Access) {
		t.Helper()
		b, err := os.ReadFile(a.file)
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for i, tt := range []struct {
		after  time.Duration
		refuse error
		want   string
	}{
		{0, nil, "token-1"}, {29 * time.Minute, nil, "token-1"}, {30 * time.Minute, errors.New("the API server is away"), "token-1"},
		{31 * time.Minute, nil, "token-3"}, {32 * time.Minute, nil, "token-3"},
	} {
		refusal = tt.refuse
		if err := a.renew(t.Context(), time.Unix(1_000_000, 0).Add(tt.after)); (err != nil) != (tt.refuse != nil) {
			t.Fatalf("%d: %v", i, err)
		}
		if diff := read(); diff != (cni.Access{Server: "https://10.0.0.1:6443", CA: "roots", Token: tt.want}) {
			t.Errorf("%d: the plugin has %+v", i, diff)
		}
		now = time.Unix(1_000_000, 0).Add(tt.after)
	}
	at := time.Unix(1_000_000, 0).Add(33 * time.Minute)
	for name, c := range map[string]struct {
		harm func() error
		anew bool
	}{
		"as it was":          {func() error { return nil }, false},
		"gone":               {func() error { return os.Remove(a.file) }, true},
		"readable by others": {func() error { return os.Chmod(a.file, 0o644) }, true},
		"somebody else's":    {func() error { return os.Chown(a.file, 4711, 0) }, true},
		"a link to where it went": {func() error {
			return errors.Join(os.Rename(a.file, a.file+".moved"), os.Symlink(a.file+".moved", a.file))
		}, true},
	} {
		before := asked
		if err := errors.Join(c.harm(), a.renew(t.Context(), at)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(a.file, &st); err != nil || st.Mode != unix.S_IFREG|0o600 || st.Uid != 0 {
			t.Errorf("%s: others can read it: %o of %d, %v", name, st.Mode, st.Uid, err)
		}
		if (asked != before) != c.anew || read().Token != fmt.Sprint("token-", asked) {
			t.Errorf("%s: asked %d times, the plugin has %s", name, asked-before, read().Token)
		}
	}
	// Once the mesh leaves the node nothing is written.
	ended, end := context.WithCancel(t.Context())
	end()
	if err := os.Remove(a.file); err != nil {
		t.Fatal(err)
	}
	_ = a.renew(ended, now.Add(time.Hour))
	if _, err := os.Stat(a.file); err == nil {
		t.Error("the file came back")
	}
	a.config = &rest.Config{Host: "x", TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "none")}}
	if err := a.renew(t.Context(), now.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "certificate authority") {
		t.Errorf("without roots: %v", err)
	}
}

// What the plugin is to know is written by one, who has ended before the files are taken away.
func TestNothingIsWrittenOnceTheMeshLeaves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	c := &cluster{known: make(chan cni.State, 1), metrics: NewMetrics(), log: slog.New(slog.DiscardHandler)}
	c.node.StateFile = file
	for i := range 100 {
		// Nobody reads yet, and nobody waits.
		c.learned(cni.State{EnrolledNamespaces: []string{fmt.Sprint("n", i)}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.teach(ctx) }()
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(time.Millisecond) {
		if s, err := cni.ReadState(file); err == nil && fmt.Sprint(s.EnrolledNamespaces) == "[n99]" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the newest was not written in 15 s")
		}
	}
	cancel()
	<-done
	if err := cni.RemoveState(file); err != nil {
		t.Fatal(err)
	}
	c.learned(cni.State{})
	for range 20 {
		c.teach(ctx)
		c.learned(cni.State{})
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file came back")
	}
}
