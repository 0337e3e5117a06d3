package ca

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// vault is one in memory that several replicas share.
type vault struct {
	mu      sync.Mutex
	sealed  *Sealed
	version int
	err     error
}

func (v *vault) Name() string { return "the vault" }

func (v *vault) Read(context.Context) (Sealed, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.err != nil:
		return Sealed{}, v.err
	case v.sealed == nil:
		return Sealed{}, ErrNoVault
	}
	return *v.sealed, nil
}

func (v *vault) Write(_ context.Context, data map[string][]byte, version string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	have := ""
	if v.sealed != nil {
		have = v.sealed.Version
	}
	switch {
	case v.err != nil:
		return "", v.err
	case have != version:
		return "", ErrChanged
	}
	v.put(maps.Clone(data))
	return v.sealed.Version, nil
}

func (v *vault) put(data map[string][]byte) {
	v.version++
	v.sealed = &Sealed{Data: data, Version: strconv.Itoa(v.version)}
}

func (v *vault) damage(f func(map[string][]byte)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	data := maps.Clone(v.sealed.Data)
	f(data)
	v.put(data)
}

func (v *vault) lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sealed = nil
}

// replicas share a vault, a clock and what the mesh was told.
type replicas struct {
	t         *testing.T
	vault     vault
	now       time.Time
	told      []byte
	published bool
	without   []string // namespaces that lack the roots
	skew      time.Duration
	leader    *Shared
	log       bytes.Buffer
	mu        sync.Mutex
	adopt     *pair
	life      time.Duration
}

func newReplicas(t *testing.T) *replicas {
	return &replicas{t: t, now: start, published: true, life: time.Hour}
}

func (r *replicas) open() (*Shared, error) {
	var s *Shared
	opened, err := OpenShared(r.t.Context(), &r.vault, SharedOptions{TrustDomain: "cluster.local", Lifetime: r.life, LeastStage: time.Minute,
		Now: func() time.Time { return r.now }, Logger: slog.New(slog.NewTextHandler(r, nil)), Publish: func(*Signer) {},
		Known: func(context.Context) ([]byte, error) { return r.told, nil },
		Adopt: func(context.Context) (cert, key []byte, err error) {
			if r.adopt == nil {
				return nil, nil, nil
			}
			return r.adopt.cert, r.adopt.key, nil
		},
		Leads: func() bool { return s != nil && s == r.leader }, KnownAt: "ConfigMap lateen-system/istio-ca-root-cert",
		Unpublished: func([]byte) (bool, []string) { return !r.published, r.without }, Skew: func() time.Duration { return r.skew }})
	s = opened
	return s, err
}

func (r *replicas) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replicas) mustOpen() *Shared {
	r.t.Helper()
	s, err := r.open()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestReplicasThatStartTogetherHaveOneRoot(t *testing.T) {
	for range 200 {
		r := newReplicas(t)
		var all [4]*Shared
		var done sync.WaitGroup
		for i := range all {
			done.Go(func() {
				s, err := r.open()
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = s
			})
		}
		done.Wait()
		for _, s := range all {
			if s == nil || !bytes.Equal(s.Signer().Bundle(), all[0].Signer().Bundle()) {
				t.Fatal("two replicas that started together have two roots")
			}
		}
	}
}

func TestTheLeaderRotatesAndTheOthersFollow(t *testing.T) {
	r := newReplicas(t)
	a, b := r.mustOpen(), r.mustOpen()
	r.leader = a
	old := a.Signer()
	look := func(d time.Duration) (Stage, Stage) {
		r.now = r.now.Add(d)
		for _, s := range []*Shared{b, a} {
			s.Look(t.Context())
			if s.Leads() {
				s.step(t.Context())
			}
		}
		b.Look(t.Context())
		if sa, sb := a.Signer(), b.Signer(); !sa.same(sb) {
			t.Fatal("the replicas sign with different roots")
		}
		return a.Status().Stage, b.Status().Stage
	}
	want := func(d time.Duration, stage Stage) {
		t.Helper()
		if sa, sb := look(d); sa != stage || sb != stage {
			t.Fatalf("after %s the stages are %s and %s, not %s", d, sa, sb, stage)
		}
	}
	want(time.Minute, Steady)
	r.vault.mu.Lock()
	r.vault.put(r.vault.sealed.Data)
	r.vault.sealed.Requested = true
	r.vault.mu.Unlock()
	r.leader = nil
	want(time.Minute, Steady) // nobody leads
	r.leader = a
	want(time.Minute, Publishing)
	if s := b.Signer(); !s.certificate.Equal(old.certificate) || len(s.roots) != 2 {
		t.Error("while publishing the old root must sign and both must be trusted")
	}
	want(time.Hour+lag, Publishing)
	r.published = false
	want(time.Minute, Publishing)
	r.published = true
	want(0, Dropping)
	if s := b.Signer(); s.certificate.Equal(old.certificate) || len(s.roots) != 2 || !trusts(s, old) {
		t.Error("while dropping the new root must sign and both must be trusted")
	}
	r.leader = b
	want(time.Hour+lag, Dropping)
	want(time.Minute, Steady)
	if s := a.Signer(); trusts(s, old) || len(s.roots) != 1 || len(r.vault.sealed.Data[otherKey]) != 0 {
		t.Error("the old root is still trusted or kept")
	}
	want(1000*time.Hour, Steady)
	want(9*365*24*time.Hour, Publishing) // before the root expires
}

// rotating is a replica that leads, in the middle of a rotation.
func rotating(t *testing.T) (*replicas, *Shared) {
	t.Helper()
	r := newReplicas(t)
	a := r.mustOpen()
	r.leader = a
	r.vault.mu.Lock()
	r.vault.put(r.vault.sealed.Data)
	r.vault.sealed.Requested = true
	r.vault.mu.Unlock()
	a.Look(t.Context())
	a.step(t.Context())
	if s := a.Status(); s.Stage != Publishing || !s.Leads {
		t.Fatalf("%+v", s)
	}
	return r, a
}

// A namespace that takes no roots, because it is full or somebody fights for it, holds a rotation up for a day and is named; the control plane's
// own does for as long as it takes, for node proxies read the roots there.
func TestOneNamespaceDoesNotStopARotation(t *testing.T) {
	r, a := rotating(t)
	r.without = []string{"tenant (exceeded quota)"}
	r.now = r.now.Add(2 * time.Hour)
	a.Look(t.Context())
	a.step(t.Context())
	if s := a.Status(); s.Stage != Publishing || !strings.Contains(s.Held, "tenant (exceeded quota)") || len(s.Unpublished) != 1 {
		t.Errorf("%+v", s)
	}
	a.step(t.Context())
	if n := strings.Count(r.log.String(), "rotation waits"); n != 1 {
		t.Errorf("told %d times: %s", n, r.log.String())
	}
	r.now = r.now.Add(stragglersFor)
	r.published = false
	a.Look(t.Context())
	a.step(t.Context())
	if s := a.Status(); s.Stage != Publishing || !strings.Contains(s.Held, "lateen-system/istio-ca-root-cert") {
		t.Errorf("%+v", s)
	}
	r.published = true
	a.step(t.Context())
	if s := a.Status(); s.Stage != Dropping || s.Held != "" || !strings.Contains(r.log.String(), "goes on although") {
		t.Errorf("%+v", s)
	}
}

func TestALeaderWhoseClockIsOffMovesNothing(t *testing.T) {
	for _, skew := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		r, a := rotating(t)
		r.skew = skew
		r.now = r.now.Add(2 * time.Hour)
		a.Look(t.Context())
		a.step(t.Context())
		if s := a.Status(); s.Stage != Publishing || !strings.Contains(s.Held, "3h0m0s off") {
			t.Errorf("%+v", s)
		}
		r.skew = time.Second
		a.step(t.Context())
		if s := a.Status(); s.Stage != Dropping {
			t.Errorf("%+v", s)
		}
	}
}

func TestAStageIsAsLongAsCertificatesLive(t *testing.T) {
	for life, want := range map[time.Duration]time.Duration{24 * time.Hour: 24*time.Hour + clockLeeway + lag, time.Minute: time.Minute + clockLeeway + time.Minute, 2 * time.Second: time.Minute + 2*time.Second} {
		s := Shared{SharedOptions: SharedOptions{LeastStage: time.Minute}}
		if got := s.leastStage(state{Lifetime: life}); got != want {
			t.Errorf("with certificates of %s it lasts %s, want %s", life, got, want)
		}
	}
}

func TestALeaderWithAnOldVersionMovesNothing(t *testing.T) {
	r := newReplicas(t)
	a := r.mustOpen()
	r.leader = a
	r.vault.damage(func(map[string][]byte) {})
	before := r.vault.version
	a.sealed.Requested = true
	a.step(t.Context())
	if r.vault.version != before || a.Status().Stage != Steady {
		t.Error("a leader wrote over what it had not read")
	}
}

func TestALostOrDamagedVaultStopsNothingAndMakesNoRoot(t *testing.T) {
	other, otherPEM, err := newRoot("cluster.local", "another", start)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		damage func(map[string][]byte)
		want   string
	}{
		"no key":       {func(d map[string][]byte) { delete(d, sharedKey) }, "ca.key"},
		"garbage":      {func(d map[string][]byte) { d[sharedCert] = []byte("x") }, "ca.crt"},
		"another pair": {func(d map[string][]byte) { d[sharedKey] = otherPEM }, "do not belong together"},
		"another root": {func(d map[string][]byte) { d[sharedKey], d[sharedCert] = otherPEM, other }, "another root"},
		"no state":     {func(d map[string][]byte) { d[sharedState] = []byte("{}") }, "state.json"},
		"empty":        {func(d map[string][]byte) { clear(d) }, "ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t)
			s := r.mustOpen()
			r.leader = s
			root, data := s.Signer().Bundle(), maps.Clone(r.vault.sealed.Data)
			r.told = root
			r.vault.damage(c.damage)
			damaged := r.vault.version
			for range 10 {
				r.now = r.now.Add(time.Minute)
				s.Look(t.Context())
				s.step(t.Context())
			}
			if !bytes.Equal(s.Signer().Bundle(), root) || r.vault.version != damaged {
				t.Error("there is another root, or what is damaged was written over")
			}
			if trouble := s.Status().Trouble; !strings.Contains(trouble, c.want) {
				t.Errorf("trouble %q does not say %q", trouble, c.want)
			}
			if n := strings.Count(r.log.String(), "stays in force"); n != 1 {
				t.Errorf("the log says so %d times", n)
			}
			if _, err := r.open(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("a replica starts with it: %v", err)
			}
			if strings.Contains(r.log.String(), "PRIVATE KEY") || strings.Contains(s.Status().Trouble, "PRIVATE KEY") {
				t.Error("a key is told")
			}
			r.vault.damage(func(d map[string][]byte) { clear(d); maps.Copy(d, data) })
			s.Look(t.Context())
			if s.Status().Trouble != "" {
				t.Errorf("what was restored is not believed: %s", s.Status().Trouble)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		r := newReplicas(t)
		a, b := r.mustOpen(), r.mustOpen()
		r.leader = a
		r.told = a.Signer().Bundle()
		r.vault.lose()
		if _, err := r.open(); err == nil || !strings.Contains(err.Error(), "would cut off every proxy") {
			t.Errorf("a new root is made: %v", err)
		}
		look := func() { b.Look(t.Context()); a.Look(t.Context()) }
		look()
		if r.vault.sealed != nil || !strings.Contains(a.Status().Trouble, "is gone") {
			t.Errorf("trouble %q", a.Status().Trouble)
		}
		r.now = r.now.Add(restoreAfter)
		b.Look(t.Context())
		if r.vault.sealed != nil {
			t.Error("one that does not lead put it back")
		}
		look()
		look()
		if r.vault.sealed == nil || a.Status().Trouble != "" || b.Status().Trouble != "" {
			t.Fatalf("it was not put back: %q, %q", a.Status().Trouble, b.Status().Trouble)
		}
		if c := r.mustOpen(); !c.Signer().same(a.Signer()) || !b.Signer().same(a.Signer()) {
			t.Error("what was put back is another root")
		}
	})
}

func TestARootThatTheMeshDoesNotTrustIsNotUsed(t *testing.T) {
	r := newReplicas(t)
	r.mustOpen()
	other, _, err := newRoot("cluster.local", "another", start)
	if err != nil {
		t.Fatal(err)
	}
	r.told = other
	if _, err := r.open(); err == nil || !strings.Contains(err.Error(), "restore the former") {
		t.Errorf("got %v", err)
	}
	r.vault.lose()
	if _, err := r.open(); err == nil {
		t.Error("a new root was made beside one that is trusted")
	}
}

func TestAnAdoptedRootGoesOnSigning(t *testing.T) {
	root := certify(t, "istio root", nil, nil)
	r := newReplicas(t)
	r.adopt = &pair{bundleOf(root), root.keyPEM(t)}
	r.told = bundleOf(root)
	s := r.mustOpen()
	if !s.Signer().certificate.Equal(root.cert) {
		t.Error("another root signs")
	}
	r.vault.lose()
	r.told = bundleOf(certify(t, "what is trusted", nil, nil))
	if _, err := r.open(); err == nil || !strings.Contains(err.Error(), "not the one that the mesh trusts") || r.vault.sealed != nil {
		t.Errorf("a root that nobody trusts was adopted: %v", err)
	}
}

func TestAReplicaThatIsCutOffSignsForAShorterTime(t *testing.T) {
	r := newReplicas(t)
	r.life = 24 * time.Hour
	s := r.mustOpen()
	for _, c := range []struct{ since, life time.Duration }{
		{0, 24 * time.Hour}, {lag, 24 * time.Hour}, {10*time.Hour + lag, 14 * time.Hour}, {23*time.Hour + lag, time.Hour}, {240 * time.Hour, time.Hour},
	} {
		r.now = start.Add(c.since)
		if got := s.Signer().NotAfter().Sub(r.now); got != c.life {
			t.Errorf("%s after the vault was read certificates live %s, not %s", c.since, got, c.life)
		}
	}
	r.vault.err = errors.New("away")
	s.Look(t.Context())
	if got := s.Signer().NotAfter().Sub(r.now); got != time.Hour || s.Status().Trouble != "" {
		t.Errorf("a read that failed counts: %s, %q", got, s.Status().Trouble)
	}
	r.vault.err = nil
	s.Look(t.Context())
	if got := s.Signer().NotAfter().Sub(r.now); got != 24*time.Hour {
		t.Errorf("after it was read again certificates live %s", got)
	}
}

func TestCertificatesLiveLongerOnlyOnceThatIsKept(t *testing.T) {
	r := newReplicas(t)
	r.mustOpen()
	r.life = 5 * time.Hour
	s := r.mustOpen()
	if got := s.Signer().NotAfter().Sub(r.now); got != time.Hour {
		t.Errorf("certificates live %s before that is kept", got)
	}
	r.leader = s
	s.step(t.Context())
	if got := s.Signer().NotAfter().Sub(r.now); got != 5*time.Hour {
		t.Errorf("certificates live %s", got)
	}
}
