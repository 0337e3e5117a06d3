package control

import (
	"context"
	"log/slog"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/gen/auth"
	rpcstatus "lateen.dev/lateen/internal/status"
)

// door turns away callers without a good token before anything they send is read: a message may be large, and
// whoever is not known must not make the control plane hold one.
type door struct {
	verifier ca.Verifier
	metrics  *rpcstatus.Metrics
	logger   *slog.Logger
}

// handle is for grpc.InTapHandle. The services verify the token once more, because they must know whose it is.
func (d door) handle(ctx context.Context, call *tap.Info) (context.Context, error) {
	_, err := ca.Authenticate(metadata.NewIncomingContext(ctx, call.Header), d.verifier)
	if err == nil {
		return ctx, nil
	}
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	d.logger.Warn("control: caller turned away", "method", call.FullMethodName, "address", address, "error", status.Convert(err).Message())
	if call.FullMethodName == auth.IstioCertificateService_CreateCertificate_FullMethodName {
		d.metrics.Refused("unauthenticated")
	} else {
		d.metrics.StreamRefused()
	}
	return nil, err
}
