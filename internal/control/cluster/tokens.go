package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/peer"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/kube"
)

const (
	// maxToken bounds a token's size in bytes; a bound service account token takes about 1 KiB.
	maxToken = 16 << 10
	// fresh is how long an answer is taken for good before the API server is asked again: a pod that was deleted keeps its token that long.
	fresh = 5 * time.Minute
	// refusedFor is how long a token that the API server refused is refused without asking.
	refusedFor = 5 * time.Second
	// maxOwn, maxRefused and, for each of at most maxNamespaces namespaces, maxPerNamespace bound what is remembered; an entry takes about 400
	// bytes. There is a token for each node proxy.
	maxOwn, maxRefused             = 16384, 4096
	maxNamespaces, maxPerNamespace = 256, 64
	// reviewTimeout bounds one question, waitTimeout how long a caller waits for its turn to have one asked.
	reviewTimeout, waitTimeout = 5 * time.Second, 5 * time.Second
	// maxReviews bounds the questions under way, maxReviewsPerAddress those for one caller's address: who invents tokens delays itself.
	maxReviews, maxReviewsPerAddress = 16, 4
	// leastPause and longestPause are how long nothing is asked after the API server did not answer.
	leastPause, longestPause = 250 * time.Millisecond, 5 * time.Second
)

// accountPrefix is what the names of service accounts' users begin with.
const accountPrefix = "system:serviceaccount:"

// Keys of the extra values of a TokenReview.
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
)

// Reviewer creates TokenReviews; client-go's client does. Let it have a client of its own: invented tokens must not use up what
// others may ask of the API server.
type Reviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// Tokens verifies service account tokens by asking the API server. A good answer is remembered, so that whoever is known stays known while
// the API server is away; nobody new is admitted then. It is safe for concurrent use.
type Tokens struct {
	reviews  Reviewer
	now      func() time.Time
	logger   *slog.Logger
	admitted *places
	refused  *cache.LRUExpireCache // digest → error
	flights  singleflight.Group
	turns    *turns

	mu    sync.Mutex
	pause time.Duration // the last one; 0 while the API server answers
	until time.Time
	away  error
}

type admission struct {
	caller ca.Caller
	fresh  time.Time
}

type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

var _ ca.Verifier = (*Tokens)(nil)

// NewTokens returns a verifier of tokens for audience ca.Audience. own says of a service account, "namespace/name", that it is the mesh's own:
// nobody else's tokens take the places of its.
func NewTokens(reviews Reviewer, own func(account string) bool, now func() time.Time, logger *slog.Logger) *Tokens {
	return &Tokens{reviews: reviews, now: now, logger: logger, turns: newTurns(maxReviews, maxReviewsPerAddress),
		admitted: newPlaces(own, now), refused: cache.NewLRUExpireCacheWithClock(maxRefused, clock(now))}
}

// Verify implements ca.Verifier.
func (t *Tokens) Verify(ctx context.Context, token string) (ca.Caller, error) {
	now := t.now()
	said, err := plausible(token, now)
	if err != nil {
		return ca.Caller{}, err
	}
	digest := sha256.Sum256([]byte(token))
	if known, ok := t.admitted.get(said.account, digest); ok && now.Before(known.fresh) {
		return known.caller, nil
	}
	if err, ok := t.refused.Get(digest); ok {
		return ca.Caller{}, err.(error)
	}
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
	}
	// The question outlives the caller that asked first: others wait for the answer.
	answer := t.flights.DoChan(string(digest[:]), func() (any, error) { return t.ask(token, digest, address, said) })
	select {
	case a := <-answer:
		if a.Err != nil {
			return ca.Caller{}, a.Err
		}
		return a.Val.(ca.Caller), nil
	case <-ctx.Done():
		return ca.Caller{}, fmt.Errorf("%w: the caller did not wait for the API server's answer", ca.ErrUnavailable)
	}
}

// Run has nothing to follow: what is good today is asked every time.
func (t *Tokens) Run(context.Context, *slog.Logger) {}

// claims is what a token says of itself. Nothing of it is believed: it can only shorten what follows, and choose where an answer is remembered.
type claims struct {
	account string // "namespace/name"
	expires time.Time
}

// plausible turns away what the API server would refuse in any case, without asking it.
func plausible(token string, now time.Time) (said claims, err error) {
	if len(token) > maxToken {
		return said, fmt.Errorf("it has %d bytes, more than %d", len(token), maxToken)
	}
	var c jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &c); err != nil {
		return said, errors.New("it is not a JWT; send a projected service account token")
	}
	audience := false
	for _, a := range c.Audience {
		audience = audience || a == ca.Audience
	}
	switch {
	case !audience:
		return said, errors.New("it is not meant for audience " + ca.Audience)
	case c.ExpiresAt == nil:
		return said, errors.New("it never expires; use a projected service account token")
	case !now.Before(c.ExpiresAt.Time):
		return said, fmt.Errorf("%w; the file it is read from must be renewed before it does", ca.ErrExpired)
	}
	return claims{strings.Replace(strings.TrimPrefix(c.Subject, accountPrefix), ":", "/", 1), c.ExpiresAt.Time}, nil
}

// ask has a token reviewed and remembers the answer.
func (t *Tokens) ask(token string, digest [sha256.Size]byte, address string, said claims) (ca.Caller, error) {
	caller, err := t.review(token, address)
	now := t.now()
	switch {
	case err == nil:
		if caller.Account() == said.account { // of a service account's token it always is
			t.admitted.add(said.account, digest, admission{caller, now.Add(fresh)}, said.expires.Sub(now))
		}
	case errors.Is(err, ca.ErrUnavailable):
		// Whoever was known before still is, for as long as the token itself lasts.
		if known, ok := t.admitted.get(said.account, digest); ok && now.Before(said.expires) {
			return known.caller, nil
		}
	default:
		t.admitted.remove(said.account, digest)
		t.refused.Add(digest, err, refusedFor)
	}
	return caller, err
}

func (t *Tokens) review(token, address string) (ca.Caller, error) {
	if err := t.paused(); err != nil {
		return ca.Caller{}, err
	}
	if !t.turns.take(context.Background(), address, waitTimeout) {
		return ca.Caller{}, fmt.Errorf("%w: too many callers with unknown tokens; try again", ca.ErrUnavailable)
	}
	defer t.turns.give(address)
	if err := t.paused(); err != nil {
		return ca.Caller{}, err
	}
	ctx, cancel := context.WithTimeout(kube.Quiet(context.Background()), reviewTimeout)
	defer cancel()
	review, err := t.reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{ca.Audience}}}, metav1.CreateOptions{})
	if err != nil {
		return ca.Caller{}, t.failed(err)
	}
	t.answered()
	return callerOf(review.Status)
}

// paused says whether the API server is left alone for now, because it did not answer a moment ago.
func (t *Tokens) paused() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Before(t.until) {
		return t.away
	}
	return nil
}

func (t *Tokens) failed(err error) error {
	why := kube.Refusal(err, authenticationv1.GroupName, "tokenreviews", "create")
	if why == "" {
		why = "the API server does not answer"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause == 0 {
		// The client's own words may be long and never hold the token, which travels in the body.
		t.logger.Error("cluster: tokens cannot be verified; callers that are known already stay admitted, others are told to try again", "reason", why, "error", kube.Cause(err))
	}
	if now := t.now(); !now.Before(t.until) { // else another one failed at the same time
		t.pause = min(max(2*t.pause, leastPause), longestPause)
		t.until = now.Add(jittered(t.pause))
	}
	t.away = fmt.Errorf("%w: %s; try again", ca.ErrUnavailable, why)
	return t.away
}

func (t *Tokens) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pause != 0 {
		t.logger.Info("cluster: tokens are verified again")
	}
	t.pause, t.until = 0, time.Time{}
}

// callerOf reads an answer. The API server's own words on a token that it refuses are not repeated: they may quote it.
func callerOf(s authenticationv1.TokenReviewStatus) (ca.Caller, error) {
	if !s.Authenticated {
		return ca.Caller{}, errors.New("the API server does not accept it: it was made by another cluster, or its pod or service account is gone; read it from its file again")
	}
	audience := false
	for _, a := range s.Audiences {
		audience = audience || a == ca.Audience
	}
	if !audience {
		return ca.Caller{}, errors.New("the API server does not confirm that it is meant for audience " + ca.Audience)
	}
	account, ok := strings.CutPrefix(s.User.Username, accountPrefix)
	namespace, name, two := strings.Cut(account, ":")
	if !ok || !two || namespace == "" || name == "" || strings.Contains(name, ":") {
		return ca.Caller{}, errors.New("it is no service account's; use a projected service account token")
	}
	extra := func(key string) string {
		if v := s.User.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	return ca.Caller{Namespace: namespace, ServiceAccount: name, PodName: extra(extraPodName), PodUID: extra(extraPodUID), NodeName: extra(extraNodeName)}, nil
}
