package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/kube"
)

// pluggedAgain is how often a plugged-in CA is tried again that could not be used.
const pluggedAgain = 30 * time.Second

// AuthorityOptions are what the CA of a cluster depends on.
type AuthorityOptions struct {
	Client kubernetes.Interface
	// SignerClient is for requests to a Kubernetes signer, which callers cause; nil stands for Client.
	SignerClient kubernetes.Interface
	// Skew is how far the clock is ahead of the API server's; nil if that is not known.
	Skew        func() time.Duration
	Namespace   string
	TrustDomain string
	// Lifetime is the longest that certificates live, LeastStage how long a stage of rotation takes at least.
	Lifetime, LeastStage time.Duration
	// Istio is the namespace of an Istio whose CA is to be taken over, empty if none is.
	Istio string
	// SignerName is that of a Kubernetes signer that signs in place of a CA of one's own, empty if there is none. SignerRoot names what holds
	// its roots, Approve has requests approved here.
	SignerName string
	SignerRoot Reference
	Approve    bool
	Leads      func() bool
	Roots      *Roots
	Now        func() time.Time
	Logger     *slog.Logger
}

// Authority is the CA of a cluster in one of its forms: a root in a Secret that the replicas share, one that is plugged in, which goes before,
// or a Kubernetes signer.
type Authority struct {
	AuthorityOptions
	plugged *followed
	shared  *followed

	mu     sync.Mutex
	active authority
	// held is why it is not open, or why what somebody plugged in is not in force.
	held string
}

// authority is what signs.
type authority interface {
	ca.Authority
	Status() ca.Status
}

// NewAuthority is a CA that signs nothing until Open has returned.
func NewAuthority(opts AuthorityOptions) *Authority {
	if opts.SignerClient == nil {
		opts.SignerClient = opts.Client
	}
	a := &Authority{AuthorityOptions: opts, held: "the certificate authority is being opened"}
	a.shared = newFollowed(opts.Namespace, CASecret)
	a.plugged = newFollowed(opts.Namespace, PluggedSecret)
	return a
}

// Open finds the CA. It tries again until it has one or ctx ends: what keeps it from it can be cured without a restart.
func (a *Authority) Open(ctx context.Context) error {
	return retry(ctx, a.Logger, "opening the certificate authority", func() error {
		active, err := a.open(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.held = err.Error()
			return err
		}
		a.active, a.held = active, ""
		return nil
	})
}

func (a *Authority) open(ctx context.Context) (authority, error) {
	if a.SignerName != "" {
		return a.openSigner(ctx)
	}
	places := []string{a.Namespace}
	if a.Istio != "" && a.Istio != a.Namespace {
		places = append(places, a.Istio)
	}
	for _, namespace := range places {
		secret, err := a.secret(ctx, namespace, PluggedSecret)
		if err != nil {
			return nil, err
		}
		if secret != nil {
			a.plugged = newFollowed(namespace, PluggedSecret)
			a.plugged.set(secret)
			known, err := a.Roots.Known(ctx)
			if err != nil {
				return nil, err
			}
			return a.openPlugged(known)
		}
	}
	return ca.OpenShared(ctx, &vault{secrets: a.Client.CoreV1().Secrets(a.Namespace), namespace: a.Namespace}, ca.SharedOptions{
		TrustDomain: a.TrustDomain, Lifetime: a.Lifetime, LeastStage: a.LeastStage, Now: a.Now, Logger: a.Logger, Publish: a.publish,
		Known: a.Roots.Known, KnownAt: a.Roots.Place(), Adopt: a.adopt, Leads: a.Leads, Unpublished: a.Roots.Unpublished, Skew: a.Skew})
}

// openPlugged opens the plugged-in CA that was read last, if those who trust the known roots accept it.
func (a *Authority) openPlugged(known []byte) (*ca.Plugged, error) {
	files, err := a.plugged.files()
	if err != nil {
		return nil, err
	}
	name := secretName(a.plugged.namespace, PluggedSecret)
	signer, err := ca.ParsePlugged(files, a.Now())
	if err != nil {
		return nil, fmt.Errorf("plugged-in CA in %s: %w", name, err)
	}
	if !ca.Continues(known, signer) {
		return nil, fmt.Errorf("the mesh does not trust the root of the plugged-in CA in %s, and every proxy would be cut off until it is restarted; to do that, delete %s first", name, a.Roots.Place())
	}
	return ca.LoadPluggedFrom(name, a.plugged.files, a.Now, a.Logger, a.publish)
}

// adopt reads the root that Istio made of its own.
func (a *Authority) adopt(ctx context.Context) (cert, key []byte, err error) {
	if a.Istio == "" {
		return nil, nil, nil
	}
	secret, err := a.secret(ctx, a.Istio, istioSecret)
	if err != nil || secret == nil {
		return nil, nil, err
	}
	cert, key = secret.Data["ca-cert.pem"], secret.Data["ca-key.pem"]
	if len(cert) == 0 || len(key) == 0 {
		return nil, nil, fmt.Errorf("%s holds no ca-cert.pem and ca-key.pem; restore it", secretName(a.Istio, istioSecret))
	}
	return cert, key, nil
}

// secret reads a Secret; it is nil if there is none.
func (a *Authority) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := a.Client.CoreV1().Secrets(namespace).Get(kube.Quiet(ctx), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		if why := kube.Refusal(err, "", "secrets", "get"); why != "" {
			return nil, fmt.Errorf("read %s: %s", secretName(namespace, name), why)
		}
		return nil, fmt.Errorf("read %s: %w", secretName(namespace, name), err)
	}
	return secret, nil
}

func (a *Authority) publish(s *ca.Signer) { a.Roots.Publish(s.Bundle()) }

func (a *Authority) opened() authority {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active
}

// Ready says what is missing until certificates can be signed.
func (a *Authority) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.active == nil {
		return errors.New(a.held)
	}
	return nil
}

// Signer implements ca.Authority.
func (a *Authority) Signer() *ca.Signer {
	if active := a.opened(); active != nil {
		return active.Signer()
	}
	return ca.NoSigner()
}

// Issued implements ca.Authority.
func (a *Authority) Issued(h ca.Holder, life time.Duration, by *ca.Signer) {
	if active := a.opened(); active != nil {
		active.Issued(h, life, by)
	}
}

// Status is how it stands, for people.
func (a *Authority) Status() ca.Status {
	a.mu.Lock()
	active, held := a.active, a.held
	a.mu.Unlock()
	if active == nil {
		return ca.Status{Trouble: held}
	}
	s := active.Status()
	s.AddTrouble(held)
	return s
}

// Run opens the CA and follows what it is made of until ctx ends.
func (a *Authority) Run(ctx context.Context) {
	if a.opened() == nil && a.Open(ctx) != nil {
		return
	}
	if remote, ok := a.opened().(*remote); ok {
		remote.run(ctx)
		return
	}
	a.plugged.follow(ctx, a.Client)
	if p, ok := a.opened().(*ca.Plugged); ok {
		p.Run(ctx)
		return
	}
	a.shared.follow(ctx, a.Client)
	shared := a.opened().(*ca.Shared)
	sharing, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); shared.Run(sharing, a.shared.changed) }()
	again := time.NewTicker(pluggedAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			<-ended
			return
		case <-again.C:
			// What was refused may be valid by now.
			if a.plugged.there() {
				a.plugged.set(a.plugged.current.Load())
			}
		case <-a.plugged.changed:
			p, err := a.plugIn()
			if err != nil || p == nil {
				continue
			}
			cancel()
			<-ended
			p.Run(ctx)
			return
		}
	}
}

// plugIn changes over to a CA that was plugged in while the shared one signs, if proxies accept it.
func (a *Authority) plugIn() (*ca.Plugged, error) {
	if !a.plugged.there() {
		a.hold("")
		return nil, nil
	}
	p, err := a.openPlugged(a.active.Signer().Bundle())
	if err != nil {
		a.hold(err.Error())
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active, a.held = p, ""
	return p, nil
}

func (a *Authority) hold(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if why != "" && why != a.held {
		a.Logger.Error("cluster: what was plugged in is not in force; what was there before signs on", "error", why)
	}
	a.held = why
}

// followed is a Secret that is watched.
type followed struct {
	namespace, name string
	current         atomic.Pointer[corev1.Secret] // nil if there is none
	changed         chan struct{}
}

func newFollowed(namespace, name string) *followed {
	return &followed{namespace: namespace, name: name, changed: make(chan struct{}, 1)}
}

func (f *followed) set(secret *corev1.Secret) {
	f.current.Store(secret)
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *followed) there() bool { return f.current.Load() != nil }

func (f *followed) follow(ctx context.Context, client kubernetes.Interface) {
	follow(ctx, source(client, client.CoreV1().Secrets(f.namespace), f.name), &corev1.Secret{}, func(*corev1.Secret) {}, func(s *corev1.Secret, gone bool) {
		switch {
		case s.Name != f.name:
		case gone:
			f.set(nil)
		default:
			f.set(s)
		}
	})
}

// files are those of a plugged-in CA.
func (f *followed) files() (ca.Files, error) {
	secret := f.current.Load()
	if secret == nil {
		return ca.Files{}, fmt.Errorf("%s is gone; restore it: without it no control plane can start", secretName(f.namespace, f.name))
	}
	files, err := ca.PluggedData(secret.Data)
	if err != nil {
		return files, fmt.Errorf("%s cannot be used: %w", secretName(f.namespace, f.name), err)
	}
	return files, nil
}
