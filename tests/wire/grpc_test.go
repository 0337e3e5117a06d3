package wire

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// echoService answers with what it got. ended tells how calls that the client gave up ended here.
type echoService struct {
	testgrpc.UnimplementedTestServiceServer
	ended chan error
}

func (e *echoService) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	grpc.SetHeader(ctx, metadata.Pairs("x-begin", "here"))
	grpc.SetTrailer(ctx, metadata.Pairs("x-end-bin", "\x00\xff"))
	if want := in.GetResponseStatus(); want != nil {
		return nil, status.Error(codes.Code(want.GetCode()), want.GetMessage())
	}
	return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
}

// EmptyCall waits for the client to give up.
func (e *echoService) EmptyCall(ctx context.Context, _ *testgrpc.Empty) (*testgrpc.Empty, error) {
	<-ctx.Done()
	e.ended <- ctx.Err()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (e *echoService) FullDuplexCall(stream grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	stream.SetTrailer(metadata.Pairs("x-end", "there"))
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			e.ended <- err
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

// startProxy puts crates/exchange/examples/exchange_proxy.rs before an upstream and gives its address.
func startProxy(t *testing.T, upstream string) string {
	t.Helper()
	command := exampleCommand(t, proxyBinary, "--h2", "127.0.0.1:0", upstream)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := &lines{}
	var follower sync.WaitGroup
	follower.Go(func() { said.follow(bufio.NewReader(stdout)) })
	t.Cleanup(func() {
		command.Process.Kill()
		follower.Wait()
		command.Wait()
	})
	var address string
	fmt.Sscanf(said.wait(t, "listening ", ""), "listening %s", &address)
	return address
}

// grpcThroughProxy is a client of grpc-go whose calls pass our proxy to a server of grpc-go.
func grpcThroughProxy(t *testing.T) (testgrpc.TestServiceClient, *echoService) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &echoService{ended: make(chan error, 1)}
	upstream := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(upstream, service)
	var serving sync.WaitGroup
	serving.Go(func() { upstream.Serve(listener) })
	t.Cleanup(func() {
		upstream.Stop()
		serving.Wait()
	})
	conn, err := grpc.NewClient("passthrough:///"+startProxy(t, listener.Addr().String()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testgrpc.NewTestServiceClient(conn), service
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestGrpcUnaryCallsPassTheProxy(t *testing.T) {
	calls, _ := grpcThroughProxy(t)
	for _, size := range []int{0, 100, 3 << 20} {
		body := bytes.Repeat([]byte("0123456789"), size/10)
		var header, trailer metadata.MD
		answer, err := calls.UnaryCall(within(t), &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: body}}, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := answer.GetPayload().GetBody(); !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back for %d, or changed", len(got), len(body))
		}
		if got := header.Get("x-begin"); len(got) != 1 || got[0] != "here" {
			t.Errorf("header x-begin %q", got)
		}
		if got := trailer.Get("x-end-bin"); len(got) != 1 || got[0] != "\x00\xff" {
			t.Errorf("trailer x-end-bin %q", got)
		}
	}
}

func TestGrpcStatusAndTrailersPassTheProxy(t *testing.T) {
	calls, _ := grpcThroughProxy(t)
	var trailer metadata.MD
	want := &testgrpc.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "not now:\tthe \u00fcbel\n"}
	_, err := calls.UnaryCall(within(t), &testgrpc.SimpleRequest{ResponseStatus: want}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != want.Message {
		t.Errorf("%v", err)
	}
	if got := trailer.Get("x-end-bin"); len(got) != 1 {
		t.Errorf("trailer x-end-bin %q", got)
	}
	// The answer to this is trailers alone.
	if _, err := calls.UnimplementedCall(within(t), &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}

func TestGrpcBidirectionalStreamsPassTheProxy(t *testing.T) {
	calls, _ := grpcThroughProxy(t)
	var streams sync.WaitGroup
	for n := range 32 {
		streams.Go(func() {
			stream, err := calls.FullDuplexCall(within(t))
			if err != nil {
				t.Error(err)
				return
			}
			for message := range 50 {
				body := bytes.Repeat([]byte{byte(n)}, 1+message*97)
				if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: body}}); err != nil {
					t.Errorf("stream %d, message %d: %v", n, message, err)
					return
				}
				answer, err := stream.Recv()
				if err != nil || !bytes.Equal(answer.GetPayload().GetBody(), body) {
					t.Errorf("stream %d, message %d: %v, or it changed", n, message, err)
					return
				}
			}
			stream.CloseSend()
			if _, err := stream.Recv(); err != io.EOF {
				t.Errorf("stream %d ends with %v", n, err)
			}
			if got := stream.Trailer().Get("x-end"); len(got) != 1 || got[0] != "there" {
				t.Errorf("stream %d has trailer x-end %q", n, got)
			}
		})
	}
	streams.Wait()
}

// The client measures the path with a PING for DATA that comes, as soon as the PING before is answered. The server does for uploads.
func TestGrpcMessagesThatBringThousandsOfPingsPassTheProxy(t *testing.T) {
	calls, _ := grpcThroughProxy(t)
	stream, err := calls.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for message := range 10_000 {
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
			t.Fatalf("message %d: %v", message, err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("message %d: %v", message, err)
		}
	}
}

func TestGrpcDeadlinesAndCancellationsPassTheProxy(t *testing.T) {
	calls, service := grpcThroughProxy(t)
	ended := func() error {
		t.Helper()
		select {
		case err := <-service.ended:
			return err
		case <-time.After(patience):
			t.Fatal("the server does not learn that the client gave up")
			return nil
		}
	}
	// The call is at the server before it ends, however busy the machine.
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := calls.EmptyCall(soon, &testgrpc.Empty{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	ended()

	// Without a deadline the reset of the stream is all that tells the server.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := calls.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&testgrpc.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := ended(); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	// The connections go on.
	if _, err := calls.UnaryCall(within(t), &testgrpc.SimpleRequest{}); err != nil {
		t.Error(err)
	}
}
