package control

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"lateen.dev/lateen/internal/gen/auth"
)

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 8, 2)
	defer l.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	dial()
	first, _ := <-accepted, <-accepted
	third := dial()
	_ = third.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := third.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the third connection got %v, want its end", err)
	}
	_ = first.Close()
	_ = first.Close() // Closing twice gives back one place, not two.
	dial()
	<-accepted
	if l.sum != 2 || l.open["127.0.0.1"] != 2 {
		t.Errorf("%d open in all, %v by address", l.sum, l.open)
	}
}

func TestHeadersOfUnknownCallersAreLimited(t *testing.T) {
	p := run(t, t.TempDir())
	conn, _ := p.connect()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+p.token(), "padding", strings.Repeat("x", maxHeaders))
	_, err := auth.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &auth.IstioCertificateRequest{}, grpc.WaitForReady(true))
	if code := status.Code(err); code == codes.OK || code == codes.InvalidArgument {
		t.Errorf("a request with %d bytes of headers reached the service: %v", maxHeaders, err)
	}
}

func TestWhoIsTurnedAwayCannotFillTheLog(t *testing.T) {
	var out strings.Builder
	d := newDoor(nil, nil, slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(0, 0)
	d.now = func() time.Time { return now }
	for range 1000 {
		d.tell(&tap.Info{FullMethodName: "/" + strings.Repeat("x", 1<<20)}, "10.0.0.1:1", "no token")
	}
	if out.Len() > 1000 || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("a thousand callers wrote %d bytes", out.Len())
	}
	now = now.Add(2 * tellEvery)
	d.tell(&tap.Info{FullMethodName: auth.IstioCertificateService_CreateCertificate_FullMethodName}, "10.0.0.1:1", "no token")
	if !strings.Contains(out.String(), "others=999") || !strings.Contains(out.String(), "CreateCertificate") {
		t.Errorf("the next line does not tell how many were left out: %s", out.String())
	}
}
