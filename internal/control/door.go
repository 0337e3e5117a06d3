package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/gen/auth"
	rpcstatus "lateen.dev/lateen/internal/status"
)

// tellEvery is how often a turned-away caller gets a line in the log; the others are counted in the next one.
const tellEvery = time.Second

// door turns away callers without a good token before anything they send is read: a message may be large, and
// whoever is not known must not make the control plane hold one, nor fill its log.
type door struct {
	verifier ca.Verifier
	// residents are accounts whose callers are vouched for, by address and port, once they have proven it.
	residents map[string]bool
	vouch     func(peer string)
	metrics   *rpcstatus.Metrics
	logger    *slog.Logger
	now       func() time.Time

	mu     sync.Mutex
	told   time.Time
	untold int
}

func newDoor(verifier ca.Verifier, residents map[string]bool, vouch func(string), metrics *rpcstatus.Metrics, logger *slog.Logger) *door {
	return &door{verifier: verifier, residents: residents, vouch: vouch, metrics: metrics, logger: logger, now: time.Now}
}

// handle is for grpc.InTapHandle. The services verify the token once more, because they must know whose it is.
func (d *door) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	caller, err := ca.Authenticate(metadata.NewIncomingContext(ctx, call.Header), d.verifier)
	if err == nil {
		if d.residents[caller.Account()] {
			d.vouch(address)
		}
		return ctx, nil
	}
	d.tell(call, address, status.Convert(err).Message())
	if call.FullMethodName == auth.IstioCertificateService_CreateCertificate_FullMethodName {
		d.metrics.Refused(ca.Unauthenticated(err))
	} else {
		d.metrics.StreamRefused()
	}
	return nil, err
}

// tell writes a line about a caller turned away, unless one was written a moment ago. What the caller calls its method
// is its own invention and may be megabytes long: only methods that exist are named.
func (d *door) tell(call *tap.Info, address, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if !d.told.IsZero() && now.Sub(d.told) < tellEvery {
		d.untold++
		return
	}
	d.told = now
	method := "unknown"
	switch call.FullMethodName {
	case auth.IstioCertificateService_CreateCertificate_FullMethodName, discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName:
		method = call.FullMethodName
	}
	const longest = 256
	if len(why) > longest {
		why = why[:longest]
	}
	d.logger.Warn("control: caller turned away", "method", method, "address", address, "error", why, "others", d.untold)
	d.untold = 0
}
