package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"

	"lateen.dev/lateen/internal/ca"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reviewer answers as an API server does that knows the tokens in good.
type reviewer struct {
	mu    sync.Mutex
	good  map[string]authenticationv1.TokenReviewStatus
	err   error
	asked atomic.Int64
	hold  chan struct{} // if not nil, an answer waits for it
}

func (r *reviewer) Create(ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.asked.Add(1)
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	review.Status = r.good[review.Spec.Token]
	if len(review.Spec.Audiences) != 1 || review.Spec.Audiences[0] != ca.Audience {
		review.Status = authenticationv1.TokenReviewStatus{}
	}
	return review, nil
}

func (r *reviewer) fails(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func bound() authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{ca.Audience}, User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:lateen-system:lateen-node",
		Extra: map[string]authenticationv1.ExtraValue{extraPodName: {"node-x"}, extraPodUID: {"u1"}, extraNodeName: {"n1"},
			"authentication.kubernetes.io/credential-id": {"JTI=1"}}}}
}

func token(t testing.TB, id string, edit func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"aud": []string{ca.Audience}, "exp": start.Add(time.Hour).Unix(), "jti": id, "sub": "system:serviceaccount:lateen-system:lateen-node"}
	if edit != nil {
		edit(claims)
	}
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte("any"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type rig struct {
	*Tokens
	reviewer *reviewer
	now      time.Time
	log      said
}

func newRig(t *testing.T) (r *rig, good string) {
	t.Helper()
	good = token(t, "good", nil)
	r = &rig{now: start, reviewer: &reviewer{good: map[string]authenticationv1.TokenReviewStatus{good: bound()}}}
	own := func(account string) bool { return account == "lateen-system/lateen-node" }
	r.Tokens = NewTokens(r.reviewer, own, func() time.Time { return r.now }, r.log.logger())
	return r, good
}

func TestATokenProvesWhatTheAPIServerSays(t *testing.T) {
	r, good := newRig(t)
	want := ca.Caller{Namespace: "lateen-system", ServiceAccount: "lateen-node", PodName: "node-x", PodUID: "u1", NodeName: "n1"}
	for range 3 {
		if got, err := r.Verify(t.Context(), good); err != nil || got != want {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if n := r.reviewer.asked.Load(); n != 1 {
		t.Errorf("asked %d times for one token", n)
	}
	r.now = r.now.Add(fresh)
	delete(r.reviewer.good, good)
	if _, err := r.Verify(t.Context(), good); err == nil || errors.Is(err, ca.ErrUnavailable) {
		t.Errorf("a token that was revoked is accepted after %s: %v", fresh, err)
	}
}

func TestWhatATokenMustHave(t *testing.T) {
	for name, c := range map[string]struct {
		claims func(jwt.MapClaims)
		review func(*authenticationv1.TokenReviewStatus)
		asked  int64
		want   string
	}{
		"other audience":     {claims: func(c jwt.MapClaims) { c["aud"] = "api" }, want: "audience istio-ca"},
		"expired":            {claims: func(c jwt.MapClaims) { c["exp"] = start.Unix() }, want: "expired"},
		"endless":            {claims: func(c jwt.MapClaims) { delete(c, "exp") }, want: "never expires"},
		"not authenticated":  {review: func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false; s.Error = "SECRET" }, asked: 1, want: "does not accept it"},
		"audience not meant": {review: func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil }, asked: 1, want: "does not confirm"},
		"a user":             {review: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "jane" }, asked: 1, want: "no service account"},
		"half an account":    {review: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:x" }, asked: 1, want: "no service account"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newRig(t)
			s := bound()
			if c.review != nil {
				c.review(&s)
			}
			bad := token(t, "bad", c.claims)
			r.reviewer.good[bad] = s
			for range 2 {
				_, err := r.Verify(t.Context(), bad)
				if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ca.ErrUnavailable) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if err != nil && strings.Contains(err.Error(), "SECRET") {
					t.Error("the API server's words are repeated")
				}
			}
			if n := r.reviewer.asked.Load(); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
	r, _ := newRig(t)
	for _, bad := range []string{"", "x", "a.b.c", strings.Repeat("x", maxToken+1)} {
		if _, err := r.Verify(t.Context(), bad); err == nil {
			t.Errorf("%.10q is accepted", bad)
		}
	}
	if r.reviewer.asked.Load() != 0 {
		t.Error("the API server is asked about what is no token")
	}
}

func TestATokenThatNamesSeveralPodsNamesNone(t *testing.T) {
	r, good := newRig(t)
	s := bound()
	s.User.Extra[extraPodName] = authenticationv1.ExtraValue{"a", "b"}
	r.reviewer.good[good] = s
	if got, err := r.Verify(t.Context(), good); err != nil || got.PodName != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWhileTheAPIServerIsAwayNobodyNewIsAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"away":      {errAway, "does not answer"},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}, "", errors.New("no")), "ClusterRole needs the rule"},
	} {
		t.Run(name, func(t *testing.T) {
			r, good := newRig(t)
			if _, err := r.Verify(t.Context(), good); err != nil {
				t.Fatal(err)
			}
			r.reviewer.fails(c.err)
			other := token(t, "other", nil)
			r.reviewer.good[other] = bound()
			r.now = start.Add(fresh + time.Second)
			if _, err := r.Verify(t.Context(), good); err != nil {
				t.Errorf("a known caller is turned away: %v", err)
			}
			_, err := r.Verify(t.Context(), other)
			if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("an unknown caller got %v", err)
			}
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+other))
			if _, err := ca.Authenticate(ctx, r); status.Code(err) != codes.Unavailable {
				t.Errorf("over gRPC an unknown caller got %v", err)
			}
			if n := r.reviewer.asked.Load(); n != 2 {
				t.Errorf("asked %d times; it must be left alone for a moment", n)
			}
			r.now = start.Add(time.Hour)
			if _, err := r.Verify(t.Context(), good); err == nil {
				t.Error("a token is good for longer than itself says")
			}
			if n := strings.Count(r.log.String(), "cannot be verified"); n != 1 {
				t.Errorf("the log says so %d times: %s", n, r.log.String())
			}
			r.reviewer.fails(nil)
			later := token(t, "later", func(c jwt.MapClaims) { c["exp"] = start.Add(2 * time.Hour).Unix() })
			r.reviewer.good[later] = bound()
			if _, err := r.Verify(t.Context(), later); err != nil {
				t.Errorf("the API server is back and nobody asks it: %v", err)
			}
			if strings.Contains(r.log.String(), good) || !strings.Contains(r.log.String(), "verified again") {
				t.Errorf("log: %s", r.log.String())
			}
		})
	}
}

func TestManyCallersWithOneTokenAskOnce(t *testing.T) {
	r, good := newRig(t)
	r.reviewer.hold = make(chan struct{})
	var done sync.WaitGroup
	for range 50 {
		done.Go(func() {
			if _, err := r.Verify(t.Context(), good); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the API server is asked", func() bool { return r.reviewer.asked.Load() == 1 })
	time.Sleep(10 * time.Millisecond)
	close(r.reviewer.hold)
	done.Wait()
	if n := r.reviewer.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestAFloodOfInventedTokensHoldsUpItsSenderOnly(t *testing.T) {
	r, good := newRig(t)
	r.reviewer.hold = make(chan struct{})
	from := func(ip string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}})
	}
	var done sync.WaitGroup
	for i := range 100 {
		done.Go(func() {
			if _, err := r.Verify(from("10.0.0.1"), token(t, fmt.Sprint(i), nil)); err == nil {
				t.Error("an invented token is accepted")
			}
		})
	}
	eventually(t, "the flood has all its turns", func() bool { return r.reviewer.asked.Load() == maxReviewsPerAddress })
	done.Go(func() {
		if _, err := r.Verify(from("10.0.0.2"), good); err != nil {
			t.Errorf("somebody else is held up: %v", err)
		}
	})
	eventually(t, "somebody else gets a turn", func() bool { return r.reviewer.asked.Load() == maxReviewsPerAddress+1 })
	close(r.reviewer.hold)
	done.Wait()
	if len(r.turns.each) != 0 || len(r.turns.all) != 0 {
		t.Errorf("%d addresses and %d turns are still remembered", len(r.turns.each), len(r.turns.all))
	}
	for i := range maxRefused + 500 {
		_, _ = r.Verify(t.Context(), token(t, fmt.Sprint("more", i), nil))
	}
	if n := len(r.refused.Keys()); n > maxRefused {
		t.Errorf("%d refused tokens are remembered", n)
	}
}

// A tenant makes himself as many good tokens as he likes. Node proxies stay known all the same, and so do other tenants.
func TestGoodTokensOfOneNamespacePushOutNobodyElses(t *testing.T) {
	r, good := newRig(t)
	of := func(account, id string) string {
		namespace, name, _ := strings.Cut(account, "/")
		made := token(t, id, func(c jwt.MapClaims) { c["sub"] = "system:serviceaccount:" + namespace + ":" + name })
		s := bound()
		s.User.Username = "system:serviceaccount:" + namespace + ":" + name
		r.reviewer.good[made] = s
		return made
	}
	neighbour := of("shop/web", "neighbour")
	all := map[string]string{"the node proxy": good, "another tenant": neighbour}
	for i := range 3 * maxPerNamespace { // the mesh's own are more than one namespace's
		all[fmt.Sprint("node proxy ", i)] = of("lateen-system/lateen-node", fmt.Sprint("proxy", i))
	}
	for _, one := range all {
		if _, err := r.Verify(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxOwn + 100 {
		if _, err := r.Verify(t.Context(), of("greedy/one", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok := r.admitted.others.Get("greedy"); !ok || len(v.(*cache.LRUExpireCache).Keys()) > maxPerNamespace {
		t.Errorf("more than %d are remembered of one namespace", maxPerNamespace)
	}
	r.reviewer.fails(errAway)
	r.now = start.Add(fresh + time.Second)
	for name, one := range all {
		if _, err := r.Verify(t.Context(), one); err != nil {
			t.Errorf("%s is not known any more: %v", name, err)
		}
	}
}

// What a token says of itself chooses where it is remembered, and must not choose for whom it is taken.
func TestATokenThatLiesAboutItsAccountIsNotRemembered(t *testing.T) {
	r, _ := newRig(t)
	lie := token(t, "lie", nil)
	s := bound()
	s.User.Username = "system:serviceaccount:greedy:one"
	r.reviewer.good[lie] = s
	for range 2 {
		if got, err := r.Verify(t.Context(), lie); err != nil || got.Account() != "greedy/one" {
			t.Errorf("%+v %v", got, err)
		}
	}
	if n := r.reviewer.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestAStreamOutlivesItsTokenButNotItsAccount(t *testing.T) {
	r, good := newRig(t)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+good))
	if err := ca.Still(ctx, r); err != nil {
		t.Error(err)
	}
	r.now = start.Add(fresh + time.Second)
	r.reviewer.fails(errAway)
	if err := ca.Still(ctx, r); err != nil {
		t.Errorf("while nobody can be asked: %v", err)
	}
	r.reviewer.fails(nil)
	r.now = start.Add(time.Minute + fresh + time.Second)
	delete(r.reviewer.good, good)
	if err := ca.Still(ctx, r); status.Code(err) != codes.Unauthenticated {
		t.Errorf("its account is gone: %v", err)
	}
	r.now = start.Add(2 * time.Hour)
	if err := ca.Still(ctx, r); err != nil {
		t.Errorf("it has expired: %v", err)
	}
}

// The cache remembers one token, byte by byte, and for no longer than the token's own expiry.
func TestARememberedTokenIsThatOneAndEndsWhenItSays(t *testing.T) {
	r, _ := newRig(t)
	brief := token(t, "brief", func(c jwt.MapClaims) { c["exp"] = start.Add(fresh / 2).Unix() })
	r.reviewer.good[brief] = bound()
	if _, err := r.Verify(t.Context(), brief); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(brief, ".")
	swapped := parts[0] + "." + strings.Split(token(t, "other", nil), ".")[1] + "." + parts[2]
	for name, forged := range map[string]string{"a signature that was cut": brief[:len(brief)-2], "no signature": parts[0] + "." + parts[1] + ".", "other claims below its signature": swapped} {
		if got, err := r.Verify(t.Context(), forged); err == nil {
			t.Errorf("%s passes as the token that is remembered: %+v", name, got)
		}
	}
	if _, err := r.Verify(t.Context(), brief); err != nil {
		t.Errorf("the token itself: %v", err)
	}
	r.now = start.Add(fresh/2 + time.Second)
	if _, err := r.Verify(t.Context(), brief); !errors.Is(err, ca.ErrExpired) {
		t.Errorf("a remembered token outlives itself: %v", err)
	}
}
