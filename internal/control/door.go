package control

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/gen/auth"
	wire "lateen.dev/lateen/internal/gen/replica"
	rpcstatus "lateen.dev/lateen/internal/status"
)

// tellEvery is how often a turned-away caller gets a line in the log; the others are counted in the next one.
const tellEvery = time.Second

// door turns away callers without a good token, and those whose account has no use for the method, before anything they send is read. A
// message may be large. Anybody who may create a pod has a token, and must not make the control plane hold one, nor fill its log.
type door struct {
	verifier ca.Verifier
	// business says why an account has no use for a method, as a gRPC status or a *ca.Refusal; nil if it has one.
	business func(method, account string) error
	// residents are accounts whose callers are vouched for, by address and port, once they have proven it.
	residents map[string]bool
	vouch     func(peer string)
	metrics   *rpcstatus.Metrics
	logger    *slog.Logger
	now       func() time.Time

	mu sync.Mutex
	// strangers have no good token, and unlisted have one and no use for the method: neither hide the others in the log.
	strangers, unlisted tally
}

// tally is when a line about callers of one kind was written last, and how many had none since.
type tally struct {
	told   time.Time
	untold int
}

func newDoor(verifier ca.Verifier, business func(method, account string) error, residents map[string]bool, vouch func(string), metrics *rpcstatus.Metrics, logger *slog.Logger) *door {
	return &door{verifier: verifier, business: business, residents: residents, vouch: vouch, metrics: metrics, logger: logger, now: time.Now}
}

// handle is for grpc.InTapHandle. The services verify token and account once more: they must know whose the token is, and more of the caller.
func (d *door) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	caller, err := ca.Authenticate(metadata.NewIncomingContext(ctx, call.Header), d.verifier)
	reason, kind := "", &d.strangers
	if err != nil {
		reason = ca.Unauthenticated(err)
	} else if kind, err = &d.unlisted, d.business(call.FullMethodName, caller.Account()); err != nil {
		if r := (*ca.Refusal)(nil); errors.As(err, &r) {
			reason, err = r.Reason, status.Error(codes.PermissionDenied, r.Text)
		}
	}
	if err == nil {
		if d.residents[caller.Account()] {
			d.vouch(address)
		}
		return ctx, nil
	}
	d.tell(kind, call, address, caller, status.Convert(err).Message())
	if call.FullMethodName == auth.IstioCertificateService_CreateCertificate_FullMethodName {
		d.metrics.Refused(reason)
	} else {
		d.metrics.StreamRefused()
	}
	return nil, err
}

// tell writes a line about a caller turned away, unless one was written a moment ago. What the caller calls its method
// is its own invention and may be megabytes long: only methods that exist are named.
func (d *door) tell(kind *tally, call *tap.Info, address string, caller ca.Caller, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if !kind.told.IsZero() && now.Sub(kind.told) < tellEvery {
		kind.untold++
		return
	}
	kind.told = now
	method := "unknown"
	switch call.FullMethodName {
	case auth.IstioCertificateService_CreateCertificate_FullMethodName, discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
		wire.Acknowledgements_Follow_FullMethodName:
		method = call.FullMethodName
	}
	const longest = 512
	if len(why) > longest {
		why = why[:longest]
	}
	logger := d.logger
	if caller.PodName != "" {
		logger = logger.With("pod", caller.Namespace+"/"+caller.PodName, "node", caller.NodeName)
	}
	logger.Warn("control: caller turned away", "method", method, "address", address, "error", why, "others", kind.untold)
	kind.untold = 0
}
