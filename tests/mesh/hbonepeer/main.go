// Command hbonepeer is a mesh peer that shares no code with the proxies: Go's TLS and HTTP/2 speak HBONE to a pod's port
// 15008 with a certificate minted for the occasion. Acceptance scripts use it to be a good peer, and every kind of bad one.
package main

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// Exit codes tell a script which layer refused.
const (
	exitServed  = 0
	exitUsage   = 64
	exitTLS     = 3
	exitRefused = 4
	exitStream  = 5
)

type options struct {
	caCert, caKey    string
	serverRoot       string
	identity         string
	validFor, backup time.Duration
	address          string
	authority        string
	path             string
}

func main() {
	var o options
	flag.StringVar(&o.caCert, "ca-cert", "", "PEM of the mesh's root")
	flag.StringVar(&o.caKey, "ca-key", "", "PEM of its key")
	flag.StringVar(&o.serverRoot, "server-root", "", "PEM of the root that the server must chain to; empty: the same")
	flag.StringVar(&o.identity, "identity", "", "SPIFFE URI to claim; empty: no client certificate")
	flag.DurationVar(&o.backup, "not-before", time.Hour, "how long ago the certificate became valid")
	flag.DurationVar(&o.validFor, "valid-for", time.Hour, "how long from now it is valid; negative: it has expired")
	flag.StringVar(&o.address, "connect", "", "HBONE address, pod-ip:15008")
	flag.StringVar(&o.authority, "authority", "", "destination of the CONNECT, pod-ip:port")
	flag.StringVar(&o.path, "get", "/", "path of the HTTP/1.1 request sent through the tunnel")
	flag.Parse()
	if o.caCert == "" || o.caKey == "" || o.address == "" || o.authority == "" {
		flag.Usage()
		os.Exit(exitUsage)
	}
	code, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hbonepeer:", err)
	}
	os.Exit(code)
}

func run(o options) (int, error) {
	config, err := tlsConfig(o)
	if err != nil {
		return exitUsage, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.address)
	if err != nil {
		return exitTLS, err
	}
	defer raw.Close()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return exitTLS, fmt.Errorf("handshake: %w", err)
	}
	return tunnel(ctx, conn, o)
}

func tunnel(ctx context.Context, conn net.Conn, o options) (int, error) {
	h2, err := (&http2.Transport{}).NewClientConn(conn)
	if err != nil {
		return exitTLS, err
	}
	toServer, body := io.Pipe()
	req := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Host: o.authority}, Host: o.authority, Header: http.Header{}, Body: toServer, ContentLength: -1}).WithContext(ctx)
	resp, err := h2.RoundTrip(req)
	if err != nil {
		// In TLS 1.3 a server refuses a client's certificate after the client believes the handshake done.
		var alert tls.AlertError
		if errors.As(err, &alert) {
			return exitTLS, fmt.Errorf("handshake: %w", err)
		}
		return exitStream, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return exitRefused, fmt.Errorf("CONNECT %s: status %d", o.authority, resp.StatusCode)
	}
	go func() {
		fmt.Fprintf(body, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", o.path, o.authority)
		body.Close() // Half-close: the answer must still arrive.
	}()
	answer, err := http.ReadResponse(bufio.NewReader(resp.Body), nil)
	if err != nil {
		return exitStream, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err != nil {
		return exitStream, err
	}
	fmt.Printf("%d %d bytes, server is %s\n", answer.StatusCode, n, serverIdentity(conn.(*tls.Conn)))
	return exitServed, nil
}

func serverIdentity(conn *tls.Conn) string {
	for _, uri := range conn.ConnectionState().PeerCertificates[0].URIs {
		return uri.String()
	}
	return "nobody"
}

func tlsConfig(o options) (*tls.Config, error) {
	root, key, err := readCA(o)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	if o.serverRoot != "" {
		other, err := readPEM(o.serverRoot)
		if err != nil {
			return nil, err
		}
		pool.AppendCertsFromPEM(pem.EncodeToMemory(other))
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		// Mesh certificates carry URIs, not host names: the chain is checked below, the name by the caller who reads it.
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(certificates [][]byte, _ [][]*x509.Certificate) error {
			leaf, err := x509.ParseCertificate(certificates[0])
			if err != nil {
				return err
			}
			_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		},
	}
	if o.identity == "" {
		return config, nil
	}
	certificate, err := mint(o, root, key)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{certificate}
	return config, nil
}

func mint(o options, root *x509.Certificate, key crypto.Signer) (tls.Certificate, error) {
	id, err := url.Parse(o.identity)
	if err != nil {
		return tls.Certificate{}, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		NotBefore:    now.Add(-o.backup), NotAfter: now.Add(o.validFor),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{id},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, root, own.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}, err
}

func readCA(o options) (*x509.Certificate, crypto.Signer, error) {
	certBlock, err := readPEM(o.caCert)
	if err != nil {
		return nil, nil, err
	}
	root, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	keyBlock, err := readPEM(o.caKey)
	if err != nil {
		return nil, nil, err
	}
	if key, err := x509.ParseECPrivateKey(keyBlock.Bytes); err == nil {
		return root, key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("%s: not a signing key", o.caKey)
	}
	return root, signer, nil
}

func readPEM(path string) (*pem.Block, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM block", path)
	}
	return block, nil
}
