// Command certificates is an authority for one identity of a mesh, as Istio's API has it. Interop scripts run it in the pod of a proxy that
// asks an authority for its certificate, and whose token the mesh's own authority does not know. It takes no token, so it listens on loopback.
package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/gen/auth"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:15099", "address of the authority, which speaks plaintext")
	caCert := flag.String("ca-cert", "", "PEM of the mesh's root")
	caKey := flag.String("ca-key", "", "PEM of its key")
	identity := flag.String("identity", "", "SPIFFE URI of every certificate")
	flag.Parse()
	if err := serve(*listen, *caCert, *caKey, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "certificates:", err)
		os.Exit(1)
	}
}

func serve(listen, caCert, caKey, identity string) error {
	pair, err := tls.LoadX509KeyPair(caCert, caKey)
	if err != nil {
		return err
	}
	root, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return errors.New("the root's key cannot sign")
	}
	uri, err := url.Parse(identity)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	auth.RegisterIstioCertificateServiceServer(server, &authority{root: root, signer: signer, identity: uri})
	return server.Serve(listener)
}

// authority signs what is asked for. Its fields never change.
type authority struct {
	auth.UnimplementedIstioCertificateServiceServer
	root     *x509.Certificate
	signer   crypto.Signer
	identity *url.URL
}

// CreateCertificate certifies the key of a request for an hour, with the authority's one identity.
func (a *authority) CreateCertificate(_ context.Context, request *auth.IstioCertificateRequest) (*auth.IstioCertificateResponse, error) {
	block, _ := pem.Decode([]byte(request.GetCsr()))
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "csr: no PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = asked.CheckSignature()
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "csr: %v", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{a.identity},
	}, a.root, asked.PublicKey, a.signer)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "sign: %v", err)
	}
	chain := []string{toPEM(der), toPEM(a.root.Raw)}
	return &auth.IstioCertificateResponse{CertChain: chain}, nil
}

func toPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
