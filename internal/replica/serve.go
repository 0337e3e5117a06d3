package replica

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "lateen.dev/lateen/internal/gen/replica"

	"lateen.dev/lateen/internal/kube"
)

// reportEvery is the least time between two reports on one call: what changes meanwhile is in the next, once.
const reportEvery = 100 * time.Millisecond

// Service tells other replicas what this one knows.
type Service struct {
	wire.UnimplementedAcknowledgementsServer
	Local *Local
	// Authorize proves that a caller is a replica of this control plane; its errors are gRPC statuses.
	Authorize func(context.Context) error
	Logger    *slog.Logger
	// Closed ends all calls when it is closed.
	Closed <-chan struct{}
}

// Follow implements the service.
func (s *Service) Follow(request *wire.FollowRequest, rpc grpc.ServerStreamingServer[wire.Report]) error {
	if err := s.Authorize(rpc.Context()); err != nil {
		return err
	}
	s.Logger.Debug("replica: another one follows what this one's proxies have acknowledged", "replica", clip(request.GetReplica()))
	subscription := s.Local.Subscribe()
	defer subscription.Close()
	first := true
	for {
		r := subscription.Take()
		if r == nil && first {
			r = &wire.Report{Complete: true}
		}
		if r != nil {
			if err := rpc.Send(r); err != nil {
				return err
			}
			first = first && !r.Complete
			if !kube.Sleep(rpc.Context(), reportEvery) {
				return nil
			}
		}
		select {
		case <-rpc.Context().Done():
			return nil
		case <-s.Closed:
			return status.Error(codes.Unavailable, "the replica is shutting down")
		case <-subscription.Wake():
		}
	}
}

// clip bounds what a caller says of itself.
func clip(text string) string {
	const most = 253 // the longest name of a pod
	return text[:min(len(text), most)]
}
