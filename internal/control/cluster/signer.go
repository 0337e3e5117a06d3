package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/kube"
)

const (
	// maxProxyRequests bounds the requests of node proxies that wait for the signer, maxRequests those of all others, and the third and fourth
	// those of one node proxy or the control plane itself, and of all callers of one namespace; more callers wait for their turn.
	maxProxyRequests, maxRequests                = 32, 8
	maxRequestsPerProxy, maxRequestsPerNamespace = 8, 2
	// signTimeout is how long a caller waits for its certificate.
	signTimeout = 25 * time.Second
	// leastLook and longestLook are the pauses between two looks at a request.
	leastLook, longestLook = 100 * time.Millisecond, 2 * time.Second
	// forgottenAfter is how old a request is that its replica did not remove; sweepEvery is how often they are looked for.
	forgottenAfter, sweepEvery = 10 * time.Minute, 5 * time.Minute
	// rootEvery is how often the signer's roots are read again.
	rootEvery = 15 * time.Second
)

// Reference names a key of a Secret or ConfigMap: "secret/NAME/KEY" or "configmap/NAME/KEY".
type Reference struct{ Kind, Name, Key string }

// ParseReference reads a reference.
func ParseReference(s string) (Reference, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] != "secret" && parts[0] != "configmap" || parts[1] == "" || parts[2] == "" {
		return Reference{}, fmt.Errorf("%q is neither secret/NAME/KEY nor configmap/NAME/KEY", s)
	}
	return Reference{parts[0], parts[1], parts[2]}, nil
}

// remote signs through the Kubernetes API: certificate requests that another program in the cluster signs.
type remote struct {
	// client reads the roots, requests makes and removes what is to be signed.
	client    kubernetes.Interface
	requests  kubernetes.Interface
	namespace string
	name      string
	root      Reference
	approve   bool
	now       func() time.Time
	logger    *slog.Logger
	publish   func(*ca.Signer)
	proxies   *turns        // by node proxy
	others    *turns        // by namespace
	patience  time.Duration // how long a caller waits
	current   atomic.Pointer[ca.Signer]

	mu      sync.Mutex
	trouble string
}

func (a *Authority) openSigner(ctx context.Context) (*remote, error) {
	r := &remote{client: a.Client, requests: a.SignerClient, namespace: a.Namespace, name: a.SignerName, root: a.SignerRoot, approve: a.Approve, now: a.Now, logger: a.Logger, publish: a.publish,
		proxies: newTurns(maxProxyRequests, maxRequestsPerProxy), others: newTurns(maxRequests, maxRequestsPerNamespace), patience: signTimeout}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Signer implements ca.Authority.
func (r *remote) Signer() *ca.Signer { return r.current.Load() }

// Issued implements ca.Authority.
func (r *remote) Issued(ca.Holder, time.Duration, *ca.Signer) {}

// Status is how it stands, for people.
func (r *remote) Status() ca.Status {
	s := ca.StatusOf(r.Signer(), r.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Source = "CertificateSigningRequests for " + r.name
	s.AddTrouble(r.trouble)
	return s
}

// load reads the signer's roots.
func (r *remote) load(ctx context.Context) error {
	var bundle []byte
	var err error
	switch r.root.Kind {
	case "secret":
		var s *corev1.Secret
		if s, err = r.client.CoreV1().Secrets(r.namespace).Get(kube.Quiet(ctx), r.root.Name, metav1.GetOptions{}); err == nil {
			bundle = s.Data[r.root.Key]
		}
	default:
		var c *corev1.ConfigMap
		if c, err = r.client.CoreV1().ConfigMaps(r.namespace).Get(kube.Quiet(ctx), r.root.Name, metav1.GetOptions{}); err == nil {
			bundle = []byte(c.Data[r.root.Key])
		}
	}
	what := fmt.Sprintf("%s %s/%s, key %s", r.root.Kind, r.namespace, r.root.Name, r.root.Key)
	if err != nil {
		if why := kube.Refusal(err, "", r.root.Kind+"s", "get"); why != "" && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read the signer's roots in %s: %s", what, why)
		}
		return fmt.Errorf("read the signer's roots in %s: %w; put them there, or correct --ca-signer-root", what, err)
	}
	signer, err := ca.NewSignerElsewhere("Kubernetes signer "+r.name, r, what, bundle)
	if err != nil {
		return fmt.Errorf("the signer's roots cannot be used: %w", err)
	}
	if before := r.current.Load(); before == nil || string(before.Bundle()) != string(signer.Bundle()) {
		r.current.Store(signer)
		r.publish(signer)
		r.logger.Info("cluster: a Kubernetes signer signs", "signer", r.name, "roots", what)
	}
	return nil
}

// run reads the roots again and again until ctx ends.
func (r *remote) run(ctx context.Context) {
	var ends ca.Watch
	for kube.Sleep(ctx, rootEvery) {
		text := ""
		if err := r.load(ctx); err != nil {
			text = err.Error()
		}
		ends.Look(r.Signer(), r.now(), r.logger)
		r.mu.Lock()
		told := r.trouble == text
		r.trouble = text
		r.mu.Unlock()
		if text != "" && !told && ctx.Err() == nil {
			r.logger.Warn("cluster: the signer's roots; those from before stay in force", "error", text)
		}
	}
}

// Sign implements ca.Elsewhere. Who may have the certificate was decided before.
func (r *remote) Sign(ctx context.Context, request []byte, life time.Duration, client bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(kube.Quiet(ctx), r.patience)
	defer cancel()
	// What keeps the mesh going does not wait behind what anybody may ask for his own pods.
	turns, whose := r.proxies, "the control plane"
	if caller, proxy, ok := ca.CallerOf(ctx); ok && proxy {
		whose = "node proxy " + caller.Namespace + "/" + caller.PodName
	} else if ok {
		turns, whose = r.others, "namespace "+caller.Namespace
	}
	if !turns.take(ctx, whose, r.patience) {
		return nil, fmt.Errorf("%w: too many requests of %s wait for the signer", ca.ErrNotSigned, whose)
	}
	defer turns.give(whose)
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}
	if client {
		usages = append(usages, certificatesv1.UsageClientAuth)
	}
	requests := r.requests.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lateen-", Labels: labels()},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: r.name, Usages: usages,
			ExpirationSeconds: ptr.To(int32(max(life, ca.LeastLifeElsewhere) / time.Second))},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, r.explain("make a request", err, "certificatesigningrequests", "create")
	}
	defer r.remove(csr.Name)
	if r.approve {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue, Reason: "IdentityProven", Message: "lateen-control has checked that the caller may have this identity", LastUpdateTime: metav1.NewTime(r.now())})
		if csr, err = requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return nil, r.explain("approve a request", err, "certificatesigningrequests/approval", "update")
		}
	}
	return r.wait(ctx, csr)
}

// wait looks at a request until it is answered.
func (r *remote) wait(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for pause := leastLook; ; pause = min(2*pause, longestLook) {
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("the request is %s: %.200s", strings.ToLower(string(c.Type)), c.Message)
			}
		}
		if len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, nil
		}
		if !kube.Sleep(ctx, pause) {
			if !approved(csr) {
				return nil, fmt.Errorf("%w: nobody has approved the request; run an approver for the signer, or start with --ca-signer-approve", ca.ErrNotSigned)
			}
			return nil, fmt.Errorf("%w: nobody has signed the request; is the signer running?", ca.ErrNotSigned)
		}
		next, err := r.requests.CertificatesV1().CertificateSigningRequests().Get(ctx, csr.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("%w: somebody removed the request", ca.ErrNotSigned)
		case err != nil && !kube.Away(err):
			return nil, r.explain("read a request", err, "certificatesigningrequests", "get")
		case err == nil:
			csr = next
		}
	}
}

func approved(csr *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return true
		}
	}
	return false
}

// remove takes away a request that was answered or that nobody waits for any more, so that nobody approves it later.
func (r *remote) remove(name string) {
	ctx, cancel := context.WithTimeout(kube.Quiet(context.Background()), reviewTimeout)
	defer cancel()
	// What is left is swept up by the leader.
	_ = r.requests.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{})
}

func (r *remote) explain(act string, err error, resource, verb string) error {
	if why := kube.Refusal(err, certificatesv1.GroupName, resource, verb); why != "" {
		return fmt.Errorf("%w: %s: %s", ca.ErrNotSigned, act, why)
	}
	return fmt.Errorf("%w: %s: %s", ca.ErrNotSigned, act, kube.Cause(err))
}

// Sweep removes the requests that replicas which ended in the middle have left, until ctx ends. It is the leader's to do.
func (a *Authority) Sweep(ctx context.Context) {
	if a.SignerName == "" {
		return
	}
	for {
		if err := a.sweep(kube.Quiet(ctx)); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			a.Logger.Warn("cluster: old certificate requests were not removed; it is tried again", "error", kube.Cause(err))
		}
		if !kube.Sleep(ctx, jittered(sweepEvery)) {
			return
		}
	}
}

func (a *Authority) sweep(ctx context.Context) error {
	requests := a.SignerClient.CertificatesV1().CertificateSigningRequests()
	all, err := requests.List(ctx, metav1.ListOptions{LabelSelector: apilabels.SelectorFromSet(labels()).String()})
	if err != nil {
		return err
	}
	for _, csr := range all.Items {
		if csr.Spec.SignerName != a.SignerName || a.Now().Sub(csr.CreationTimestamp.Time) < forgottenAfter {
			continue
		}
		if err := requests.Delete(ctx, csr.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
