package ca

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/gen/auth"
)

// impersonatedIdentity is the metadata field in which a node proxy names the workload it asks for.
const impersonatedIdentity = "ImpersonatedIdentity"

// Observer hears of every decision.
type Observer interface {
	Issued()
	Refused(reason string)
}

// Service implements Istio's certificate service.
type Service struct {
	auth.UnimplementedIstioCertificateServiceServer
	Authority  Authority
	Verifier   Verifier
	Authorizer *NodeAuthorizer
	// Lifetime is what a certificate lives when nothing is asked, and the most it may live; MinLifetime is the least that may be asked.
	Lifetime, MinLifetime time.Duration
	Now                   func() time.Time
	Observer              Observer
	Logger                *slog.Logger

	pace pace
	told told
}

// CreateCertificate signs the caller's request for an identity that it may have.
func (s *Service) CreateCertificate(ctx context.Context, req *auth.IstioCertificateRequest) (*auth.IstioCertificateResponse, error) {
	caller, err := Authenticate(ctx, s.Verifier)
	if err != nil {
		return nil, s.refused(Unauthenticated(err), Caller{}, "", err)
	}
	proxy := s.Authorizer.Accounts[caller.Account()]
	if !s.pace.allow(caller, proxy, s.Now()) {
		return nil, s.tooMany(caller, proxy)
	}
	ctx = WithCaller(ctx, caller, proxy)
	wanted, err := impersonated(req)
	if err != nil {
		return nil, s.refused("malformed_request", caller, "", status.Error(codes.InvalidArgument, err.Error()))
	}
	id, err := s.Authorizer.Identity(caller, wanted)
	if err != nil {
		reason := "refused"
		if r := (*Refusal)(nil); errors.As(err, &r) {
			reason = r.Reason
		}
		return nil, s.refused(reason, caller, wanted, status.Error(codes.PermissionDenied, err.Error()))
	}
	csr, err := ParseRequest([]byte(req.GetCsr()))
	if err != nil {
		return nil, s.refused("malformed_csr", caller, id.String(), status.Error(codes.InvalidArgument, err.Error()))
	}
	if csr.identity != nil && *csr.identity != id {
		return nil, s.refused("other_identity_in_csr", caller, id.String(), status.Errorf(codes.PermissionDenied,
			"the request's certificate would name %s, but it is made for %s; make both the same", *csr.identity, id))
	}
	lifetime, err := s.lifetime(req.GetValidityDuration())
	if err != nil {
		return nil, s.refused("malformed_request", caller, id.String(), status.Error(codes.InvalidArgument, err.Error()))
	}
	if wanted == "" {
		lifetime = s.Authorizer.Own.limit(lifetime)
	}
	now, signer := s.Now(), s.Authority.Signer()
	if signer.elsewhere == nil { // what others sign ends when they say
		lifetime = max(0, min(lifetime, signer.NotAfter().Sub(now)))
	}
	template := &x509.Certificate{
		NotBefore:   now.Add(-min(backdate, lifetime/4)), // ztunnel renews at half of what stands here: that must not be over at once
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{id.URI()},
	}
	if signer.elsewhere != nil {
		if err := csr.copyable(id, signer.name); err != nil {
			return nil, s.refused("malformed_csr", caller, id.String(), status.Error(codes.InvalidArgument, err.Error()))
		}
	}
	der, chain, err := signer.issue(ctx, csr, template, now)
	if errors.Is(err, ErrEnded) {
		return nil, s.refused("ca_ended", caller, id.String(), status.Error(codes.FailedPrecondition, err.Error()))
	}
	if errors.Is(err, ErrNotSigned) {
		return nil, s.refused("unavailable", caller, id.String(), status.Error(codes.Unavailable, err.Error()))
	}
	if err != nil {
		return nil, s.refused("internal", caller, id.String(), status.Error(codes.Internal, err.Error()))
	}
	s.Authority.Issued(holder(caller, id), template.NotAfter.Sub(now), signer)
	s.Observer.Issued()
	s.Logger.Info("ca: certificate issued", "caller", caller.Account(), "pod", caller.PodName, "node", caller.NodeName, "identity", id.String(), "expires", template.NotAfter)
	// Leaf first, intermediates one for each element, the root bundle last.
	answer := []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	for _, c := range chain {
		answer = append(answer, string(encode(c)))
	}
	return &auth.IstioCertificateResponse{CertChain: append(answer, string(signer.Bundle()))}, nil
}

// holder is where a caller keeps what it gets: a node proxy that replaces another one takes its place.
func holder(caller Caller, id Identity) Holder {
	if caller.NodeName != "" {
		return Holder{Node: caller.NodeName, Identity: id.String()}
	}
	return Holder{Node: caller.Namespace + "/" + caller.PodName, Identity: id.String(), pod: true}
}

// lifetime reads the validity that a request asks for, in seconds.
func (s *Service) lifetime(seconds int64) (time.Duration, error) {
	switch {
	case seconds < 0:
		return 0, errors.New("the requested validity is negative; ask for a number of seconds, or for 0 to get the default")
	case seconds == 0 || seconds > int64(s.Lifetime/time.Second):
		return s.Lifetime, nil
	case seconds < int64(s.MinLifetime/time.Second):
		return 0, fmt.Errorf("the requested validity of %d s is shorter than the %s that this CA issues; ask for more, or lower --min-cert-ttl", seconds, s.MinLifetime)
	}
	return time.Duration(seconds) * time.Second, nil
}

func impersonated(req *auth.IstioCertificateRequest) (string, error) {
	v, ok := req.GetMetadata().GetFields()[impersonatedIdentity]
	if !ok {
		return "", nil
	}
	// An empty or non-text value must not fall back to the caller's own identity: the caller meant something else.
	if v.GetStringValue() == "" {
		return "", errors.New("metadata " + impersonatedIdentity + " is not a SPIFFE identity; leave it out to get the caller's own")
	}
	return v.GetStringValue(), nil
}

// refused counts and logs a refusal. It names both identities and never the token.
func (s *Service) refused(reason string, caller Caller, wanted string, err error) error {
	s.Observer.Refused(reason)
	s.Logger.Warn("ca: certificate refused", "reason", reason, "caller", caller.Account(), "pod", caller.PodName, "node", caller.NodeName,
		"identity", wanted, "error", status.Convert(err).Message())
	return err
}
