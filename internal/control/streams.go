package control

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/xds"
)

// streams proves that who opens a discovery stream is a node proxy, and stays one. A workload has no use for the addresses and policies of the
// mesh.
type streams struct {
	verifier   ca.Verifier
	authorizer *ca.NodeAuthorizer
	// bound says that tokens must be bound to a pod that is still there. On one machine the engine makes them, for nobody else.
	bound   bool
	refused func()
}

// Authenticate implements xds.Authenticator.
func (s streams) Authenticate(ctx context.Context) (xds.Client, func(context.Context) error, error) {
	caller, err := ca.Authenticate(ctx, s.verifier)
	if err == nil {
		if err = s.may(caller); err != nil {
			s.refused()
		}
	}
	if err != nil {
		return xds.Client{}, nil, err
	}
	client := xds.Client{Node: caller.NodeName, Workload: caller.Namespace + "/" + caller.PodName, Identity: caller.Account()}
	if !s.bound {
		return client, nil, nil
	}
	return client, func(ctx context.Context) error {
		if err := s.may(caller); err != nil {
			return err
		}
		return ca.Still(ctx, s.verifier)
	}, nil
}

func (s streams) may(caller ca.Caller) error {
	if !s.authorizer.Accounts[caller.Account()] {
		return grpcstatus.Errorf(codes.PermissionDenied,
			"service account %s is not a node proxy's; list it in --node-proxy-accounts if it is", caller.Account())
	}
	if !s.bound {
		return nil
	}
	return there(s.authorizer, caller)
}

// there says why a caller is not the pod that its token is bound to, as a gRPC status.
func there(authorizer *ca.NodeAuthorizer, caller ca.Caller) error {
	_, err := authorizer.Bound(caller)
	if r := (*ca.Refusal)(nil); errors.As(err, &r) && r.Reason == "unknown_pod" {
		return grpcstatus.Error(codes.Unavailable, err.Error()) // it may have come a moment ago
	}
	if err != nil {
		return grpcstatus.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}
