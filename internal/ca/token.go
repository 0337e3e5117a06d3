package ca

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Audience is the audience that a token must be meant for, Istio's name for its certificate authority.
const Audience = "istio-ca"

const (
	// maxToken bounds a token's size in bytes; a bound service account token takes about 1 KiB.
	maxToken = 16 << 10
	// clockLeeway is how far the issuer's clock may be off.
	clockLeeway = 30 * time.Second
)

// TokenVerifier verifies ES256 tokens against public keys, those of a file if it was loaded from one, in the form of Kubernetes' bound service account tokens.
type TokenVerifier struct {
	keys   atomic.Pointer[[]*ecdsa.PublicKey]
	parser *jwt.Parser

	path    string
	read    []byte
	logger  *slog.Logger
	trouble string
}

// LoadTokenVerifier reads one or several PEM public keys (ECDSA P-256) from a file.
func LoadTokenVerifier(path, issuer string, now func() time.Time) (*TokenVerifier, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the token key: %w", err)
	}
	keys, err := parseTokenKeys(path, data)
	if err != nil {
		return nil, err
	}
	v := NewTokenVerifier(keys, issuer, now)
	v.path, v.read, v.logger = path, data, slog.New(slog.DiscardHandler)
	return v, nil
}

// Run follows the file of keys until ctx ends: whoever signs tokens may add a key, use it, and take the old one away. A file that
// cannot be used leaves the keys from before in force.
func (v *TokenVerifier) Run(ctx context.Context, logger *slog.Logger) {
	v.logger = logger
	every(ctx, lookEvery, v.step)
}

func (v *TokenVerifier) step() {
	data, err := os.ReadFile(v.path)
	if err == nil && bytes.Equal(data, v.read) {
		v.trouble = ""
		return
	}
	var keys []*ecdsa.PublicKey
	if err == nil {
		keys, err = parseTokenKeys(v.path, data)
	}
	if err != nil {
		if text := err.Error(); text != v.trouble {
			v.trouble = text
			v.logger.Warn("ca: the token keys cannot be read; those from before stay in force", "error", text)
		}
		return
	}
	v.trouble, v.read = "", data
	v.keys.Store(&keys)
	v.logger.Info("ca: token keys read", "file", v.path, "keys", len(keys))
}

func parseTokenKeys(path string, data []byte) ([]*ecdsa.PublicKey, error) {
	var keys []*ecdsa.PublicKey
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; it must hold PEM public keys", path, err)
		}
		key, ok := parsed.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("%s holds a key that is not ECDSA P-256; tokens are signed with ES256", path)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s holds no PEM public key", path)
	}
	return keys, nil
}

// NewTokenVerifier verifies tokens of one issuer.
func NewTokenVerifier(keys []*ecdsa.PublicKey, issuer string, now func() time.Time) *TokenVerifier {
	v := &TokenVerifier{parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}),
		jwt.WithAudience(Audience),
		jwt.WithIssuer(issuer),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(clockLeeway),
		jwt.WithTimeFunc(now),
	)}
	v.keys.Store(&keys)
	return v
}

// claims are those of a bound service account token.
type claims struct {
	jwt.RegisteredClaims
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount named  `json:"serviceaccount"`
		Pod            named  `json:"pod"`
		Node           named  `json:"node"`
	} `json:"kubernetes.io"`
}

type named struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Verify implements Verifier.
func (v *TokenVerifier) Verify(_ context.Context, token string) (Caller, error) {
	if len(token) > maxToken {
		return Caller{}, fmt.Errorf("it has %d bytes, more than %d", len(token), maxToken)
	}
	var c claims
	_, err := v.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) {
		set := jwt.VerificationKeySet{}
		for _, k := range *v.keys.Load() {
			set.Keys = append(set.Keys, k)
		}
		return set, nil
	})
	if err != nil {
		return Caller{}, explain(err)
	}
	k := c.Kubernetes
	caller := Caller{Namespace: k.Namespace, ServiceAccount: k.ServiceAccount.Name, PodName: k.Pod.Name, PodUID: k.Pod.UID, NodeName: k.Node.Name}
	if caller.Namespace == "" || caller.ServiceAccount == "" {
		return Caller{}, errors.New("it names no namespace and service account; use a bound service account token")
	}
	if want := "system:serviceaccount:" + caller.Namespace + ":" + caller.ServiceAccount; c.Subject != want {
		return Caller{}, errors.New("its subject and its kubernetes.io claim name different service accounts")
	}
	return caller, nil
}

// explain says what is wrong with a token without repeating any of it: a parser's own message may quote its input.
func explain(err error) error {
	for _, e := range []struct {
		is   error
		text string
	}{
		{jwt.ErrTokenExpired, "it has expired; the file it is read from must be renewed before it does"},
		{jwt.ErrTokenNotValidYet, "it is not valid yet; check the clocks"},
		{jwt.ErrTokenUsedBeforeIssued, "it is not valid yet; check the clocks"},
		{jwt.ErrTokenInvalidAudience, "it is not meant for audience " + Audience},
		{jwt.ErrTokenInvalidIssuer, "it comes from an issuer that is not trusted here"},
		{jwt.ErrTokenSignatureInvalid, "its signature does not match a trusted key; it was made by another mesh or another run of this one"},
		{jwt.ErrTokenRequiredClaimMissing, "it lacks a required claim (exp, aud or iss)"},
		{jwt.ErrTokenMalformed, "it is not a JWT"},
	} {
		if errors.Is(err, e.is) {
			return errors.New(e.text)
		}
	}
	return errors.New("it could not be verified")
}
