package control

import (
	"context"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"lateen.dev/lateen/internal/gen/auth"
)

// An unknown caller is answered before a byte of its message is read. These calls send none, and would wait for ever behind a door that reads.
func TestTheDoorsAnswerBeforeTheyRead(t *testing.T) {
	p := run(t, t.TempDir())
	conn, _ := p.connect()
	for _, method := range []string{auth.IstioCertificateService_CreateCertificate_FullMethodName, discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
		discovery.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName, "/lateen.replica.Acknowledgements/Follow", "/no/such"} {
		for who, headers := range map[string]metadata.MD{"without a token": {}, "with an invented one": metadata.Pairs("authorization", "Bearer e30.e30."), "with two": metadata.Pairs("authorization", "Bearer "+p.token(), "authorization", "Bearer "+p.token())} {
			ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), headers), 10*time.Second)
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(&auth.IstioCertificateResponse{}); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s %s: %v", method, who, err)
			}
			cancel()
		}
	}
}

// Any pod has a token of the audience, and most of them have no business here.
func TestTheDoorsReadNothingOfAccountsWithoutBusiness(t *testing.T) {
	p := run(t, t.TempDir())
	p.write("engine.yaml", base)
	conn, _ := p.connect()
	for _, method := range []string{auth.IstioCertificateService_CreateCertificate_FullMethodName, discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName,
		"/lateen.replica.Acknowledgements/Follow"} {
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+p.tokenOf("shop", "web", "web-1", "w1")), 10*time.Second)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&auth.IstioCertificateResponse{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", method, err)
		}
		cancel()
	}
}

// A list of those who may have a certificate in their own name is none of those who may read the mesh.
func TestWhoMayHaveItsOwnIdentityMayNotFollowTheConfiguration(t *testing.T) {
	p := runWith(t, t.TempDir(), func(o *Options) { o.OwnIdentityAccounts = []string{"shop/web"} })
	p.write("engine.yaml", base)
	conn, _ := p.connect()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+p.tokenOf("shop", "web", "web-1", "w1")), 30*time.Second)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stream: %v", err)
	}
	// Its token is good for something: its certificate is refused for the request alone.
	eventually(t, "its pod is known", func() bool {
		_, err := auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &auth.IstioCertificateRequest{Csr: "none"})
		return status.Code(err) == codes.InvalidArgument
	})
}
