package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
)

// Keys of a Secret of type kubernetes.io/tls, as cert-manager fills it.
const (
	tlsCert = "tls.crt"
	tlsKey  = "tls.key"
	tlsRoot = "ca.crt"
)

// PluggedData reads a plugged-in CA from what a Secret holds: the names of Istio's "cacerts", or those of a TLS Secret, in which tls.crt
// begins with the CA's own certificate and ca.crt is the root.
func PluggedData(data map[string][]byte) (Files, error) {
	var keys []string
	files := Files{Cert: data[pluggedCert], Key: data[pluggedKey], Chain: data[pluggedChain], Root: data[pluggedRoot]}
	if len(files.Cert) > 0 || len(data[tlsCert]) == 0 {
		keys = []string{pluggedCert, pluggedKey, pluggedRoot}
	} else {
		keys = []string{tlsCert, tlsKey, tlsRoot}
		files = Files{Key: data[tlsKey], Chain: data[tlsCert], Root: data[tlsRoot]}
		if block, _ := pem.Decode(data[tlsCert]); block != nil {
			files.Cert = pem.EncodeToMemory(block)
		} else {
			files.Cert = data[tlsCert]
		}
	}
	for _, k := range keys {
		switch {
		case len(bytes.TrimSpace(data[k])) == 0:
			return files, fmt.Errorf("it has no %s; it must hold %s, %s, %s and %s, or %s, %s and %s", k, pluggedCert, pluggedKey, pluggedChain, pluggedRoot, tlsCert, tlsKey, tlsRoot)
		case len(data[k]) > maxPluggedFile:
			return files, fmt.Errorf("its %s has %d bytes, more than %d", k, len(data[k]), maxPluggedFile)
		}
	}
	return files, nil
}

// Continues says whether proxies that so far trust the PEM bundle accept what a signer issues: its root is in it. Nobody was told to trust
// anything if the bundle is empty.
func Continues(bundle []byte, s *Signer) bool {
	if len(bytes.TrimSpace(bundle)) == 0 {
		return true
	}
	before, err := certificates("the bundle", bundle)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.roots, func(r *x509.Certificate) bool { return s.leadsTo(r) && slices.ContainsFunc(before, r.Equal) })
}
