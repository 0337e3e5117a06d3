package control

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

// streams proves that who opens a discovery stream is a node proxy or a proxy of a Gateway, and stays one. A workload has no use for the addresses
// and policies of the mesh.
type streams struct {
	verifier   ca.Verifier
	authorizer *ca.NodeAuthorizer
	// gateways says whether an account is that of a Gateway's proxies.
	gateways func(account string) bool
	// bound says that tokens must be bound to a pod that is still there. On one machine the engine makes them, for nobody else.
	bound   bool
	refused func()
}

// Authenticate implements xds.Authenticator.
func (s streams) Authenticate(ctx context.Context) (xds.Client, func(context.Context) error, error) {
	caller, err := ca.Authenticate(ctx, s.verifier)
	var role resourcelog.Role
	if err == nil {
		if role, err = s.may(caller); err != nil {
			s.refused()
		}
	}
	if err != nil {
		return xds.Client{}, nil, err
	}
	client := xds.Client{Node: caller.NodeName, Workload: caller.Namespace + "/" + caller.PodName, Identity: caller.Account(), Role: role}
	if !s.bound {
		return client, nil, nil
	}
	return client, func(ctx context.Context) error {
		now, err := s.may(caller)
		switch {
		case err != nil:
			return err
		case now != role:
			return grpcstatus.Errorf(codes.Unavailable, "service account %s has another role than when the stream was opened; reconnect", caller.Account())
		}
		return ca.Still(ctx, s.verifier)
	}, nil
}

// may says which role a caller has, or why it may not follow the mesh's configuration.
func (s streams) may(caller ca.Caller) (resourcelog.Role, error) {
	role, err := s.role(caller.Account())
	if err != nil || !s.bound {
		return role, err
	}
	return role, there(s.authorizer, caller)
}

// role is that of the proxies of an account. The error is a gRPC status: it is no proxy's.
func (s streams) role(account string) (resourcelog.Role, error) {
	switch {
	case s.authorizer.Accounts[account]:
		return resourcelog.RoleNode, nil
	case s.gateways != nil && s.gateways(account):
		return resourcelog.RoleWaypoint, nil
	}
	return "", grpcstatus.Errorf(codes.PermissionDenied,
		"service account %s is not a node proxy's, and no Gateway that this mesh serves runs as it; list it in --node-proxy-accounts if it is a node proxy's", account)
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
