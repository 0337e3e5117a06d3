package ca

import (
	"context"
	"crypto/ecdsa"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// FuzzParseRequest: no bytes make the parser panic, and what it accepts names at most an identity that reads back the same.
func FuzzParseRequest(f *testing.F) {
	f.Add(csr(f, newKey(f), nil, web))
	f.Add(csr(f, newKey(f), nil))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRequest([]byte(text))
		if err != nil || r.identity == nil {
			return
		}
		if again, err := ParseIdentity(r.identity.String()); err != nil || again != *r.identity {
			t.Errorf("%v reads back as %v, %v", r.identity, again, err)
		}
	})
}

// FuzzVerifyToken: no bytes make the verifier panic, nothing that was not signed here is accepted, and no refusal repeats its input.
func FuzzVerifyToken(f *testing.F) {
	key := newKey(f)
	v := NewTokenVerifier([]*ecdsa.PublicKey{&key.PublicKey}, "lateen-local", func() time.Time { return start })
	good := sign(f, jwt.SigningMethodES256, key, claimsOf("n1", nil))
	f.Add(good)
	f.Add(good[:len(good)-4])
	f.Add("e30.e30.")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		caller, err := v.Verify(context.Background(), token)
		if err == nil && (caller.Namespace != "istio-system" || caller.ServiceAccount != "ztunnel") {
			t.Errorf("accepted %+v", caller)
		}
		if err != nil && len(token) > 40 && strings.Contains(err.Error(), token) {
			t.Errorf("the refusal repeats the token: %v", err)
		}
	})
}

// FuzzIdentity: what is accepted renders to the very text that was read.
func FuzzIdentity(f *testing.F) {
	f.Add(web)
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseIdentity(s); err == nil && (id.String() != s || id.URI().String() != s) {
			t.Errorf("%q reads as %v", s, id)
		}
	})
}
