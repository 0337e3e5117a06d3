package ca

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Caller is whom a token proves: a service account, and the pod and node that the token is bound to.
type Caller struct {
	Namespace, ServiceAccount string
	PodName, PodUID           string
	NodeName                  string
}

// Account renders "namespace/serviceaccount".
func (c Caller) Account() string { return c.Namespace + "/" + c.ServiceAccount }

// Verifier proves who bears a token. Its errors say what is wrong with the token and how to get a good one, never the token.
type Verifier interface {
	Verify(ctx context.Context, token string) (Caller, error)
}

// Authenticate verifies the bearer token of a gRPC call. Its error is a gRPC status.
func Authenticate(ctx context.Context, v Verifier) (Caller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 {
		return Caller{}, status.Error(codes.Unauthenticated, "no authorization header; send \"authorization: Bearer TOKEN\" with a service account token for audience istio-ca")
	}
	token, ok := cutBearer(values[0])
	if !ok || len(values) > 1 {
		return Caller{}, status.Error(codes.Unauthenticated, "the authorization header is not \"Bearer TOKEN\"; send one service account token for audience istio-ca")
	}
	caller, err := v.Verify(ctx, token)
	if err != nil {
		return Caller{}, status.Errorf(codes.Unauthenticated, "the token was not accepted: %v", err)
	}
	return caller, nil
}

func cutBearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
