package ca

import (
	"crypto/dsa" //nolint:staticcheck // what Go deprecates others still send
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"testing"
)

func TestWhichKeysAreStrongEnough(t *testing.T) {
	bits := func(n uint) *rsa.PublicKey { return &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), n-1), E: 65537} }
	for _, c := range []struct {
		name string
		key  any
		good bool
	}{
		{"RSA 2047", bits(2047), false}, {"RSA 2048", bits(2048), true}, {"RSA 8192", bits(8192), true}, {"RSA 8193", bits(8193), false}, {"RSA 65536", bits(65536), false},
		{"P-224", &ecdsa.PublicKey{Curve: elliptic.P224()}, false}, {"P-256", &ecdsa.PublicKey{Curve: elliptic.P256()}, true}, {"P-384", &ecdsa.PublicKey{Curve: elliptic.P384()}, true},
		{"P-521", &ecdsa.PublicKey{Curve: elliptic.P521()}, false}, {"Ed25519", ed25519.PublicKey{}, true}, {"DSA", &dsa.PublicKey{}, false}, {"no key", nil, false},
	} {
		if err := checkKey(c.key); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
