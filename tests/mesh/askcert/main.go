// Command askcert asks the certificate authority for an identity with a given token, as a node proxy would. Acceptance
// scripts use it to ask for what a node must not get.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"lateen.dev/lateen/internal/gen/auth"
)

func main() {
	address := flag.String("address", "10.243.0.1:15012", "the control plane")
	root := flag.String("root", "", "PEM of the mesh's root")
	name := flag.String("server-name", "", "the name that the control plane must prove; empty: that of the address")
	token := flag.String("token-file", "", "bearer token; empty: none is sent")
	identity := flag.String("identity", "", "SPIFFE URI to ask for")
	own := flag.Bool("own", false, "ask in the token's own name, as a waypoint would, and not as a node proxy")
	flag.Parse()
	if err := ask(*address, *name, *root, *token, *identity, *own); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", status.Code(err), status.Convert(err).Message())
		os.Exit(1)
	}
}

func ask(address, serverName, rootFile, tokenFile, identity string, own bool) error {
	roots := x509.NewCertPool()
	pemRoot, err := os.ReadFile(rootFile)
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(pemRoot)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12})))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if tokenFile != "" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	request, err := certificateRequest(identity, own)
	if err != nil {
		return err
	}
	response, err := auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, request)
	if err != nil {
		return err
	}
	fmt.Printf("%d certificates for %s\n", len(response.GetCertChain()), identity)
	return nil
}

func certificateRequest(identity string, own bool) (*auth.IstioCertificateRequest, error) {
	uri, err := url.Parse(identity)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{uri}}, key)
	if err != nil {
		return nil, err
	}
	var impersonated *structpb.Struct
	if !own {
		if impersonated, err = structpb.NewStruct(map[string]any{"ImpersonatedIdentity": identity}); err != nil {
			return nil, err
		}
	}
	return &auth.IstioCertificateRequest{
		Csr:              string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
		ValidityDuration: 3600,
		Metadata:         impersonated,
	}, nil
}
