package ca

import (
	"context"
	"errors"
	"fmt"
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

// ErrUnavailable is what a Verifier's error wraps when it could not find out whether a token is good. The caller is not admitted, and may try again.
var ErrUnavailable = errors.New("tokens cannot be verified at present")

// ErrExpired is what a Verifier's error wraps for a token that was good once, as far as can be told.
var ErrExpired = errors.New("it has expired")

// Verifier proves who bears a token. Its errors say what is wrong with the token and how to get a good one, never the token.
type Verifier interface {
	Verify(ctx context.Context, token string) (Caller, error)
}

// Authenticate verifies the bearer token of a gRPC call. Its error is a gRPC status.
func Authenticate(ctx context.Context, v Verifier) (Caller, error) {
	caller, err := verify(ctx, v)
	if errors.Is(err, ErrUnavailable) {
		return Caller{}, status.Error(codes.Unavailable, err.Error())
	}
	if err != nil {
		return Caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return caller, nil
}

// Still says why the token of a call that was authenticated is not good any more: a gRPC status. A token is shown once, when a call begins; that
// it has expired since, or that nobody can be asked, ends no call.
func Still(ctx context.Context, v Verifier) error {
	_, err := verify(ctx, v)
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrExpired) {
		return nil
	}
	return status.Error(codes.Unauthenticated, err.Error())
}

func verify(ctx context.Context, v Verifier) (Caller, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 {
		return Caller{}, errors.New("no authorization header; send \"authorization: Bearer TOKEN\" with a service account token for audience istio-ca")
	}
	token, ok := cutBearer(values[0])
	if !ok || len(values) > 1 {
		return Caller{}, errors.New("the authorization header is not \"Bearer TOKEN\"; send one service account token for audience istio-ca")
	}
	caller, err := v.Verify(ctx, token)
	switch {
	case errors.Is(err, ErrUnavailable):
		return Caller{}, err
	case err != nil:
		return Caller{}, fmt.Errorf("the token was not accepted: %w", err)
	}
	return caller, nil
}

// called is the key of a context under which who calls is told to those who sign elsewhere.
type called struct{}

type calling struct {
	caller Caller
	proxy  bool
}

// WithCaller tells an Elsewhere who wants a certificate, and whether that is a node proxy.
func WithCaller(ctx context.Context, caller Caller, proxy bool) context.Context {
	return context.WithValue(ctx, called{}, calling{caller, proxy})
}

// CallerOf is who wants a certificate, and whether it is a node proxy; ok is false if the control plane itself does.
func CallerOf(ctx context.Context) (caller Caller, proxy, ok bool) {
	c, ok := ctx.Value(called{}).(calling)
	return c.caller, c.proxy, ok
}

// Unauthenticated is the reason for counting an error of Authenticate.
func Unauthenticated(err error) string {
	if status.Code(err) == codes.Unavailable {
		return "unavailable"
	}
	return "unauthenticated"
}

func cutBearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
