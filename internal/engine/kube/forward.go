package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// Dial connects to a port of a pod, from the pod's own loopback address.
type Dial func(ctx context.Context, namespace, pod string, port int) (net.Conn, error)

// Forward connects by way of the API server, as kubectl port-forward does: over a WebSocket, or SPDY where the server knows no other.
func Forward(cfg *rest.Config, client kubernetes.Interface) Dial {
	return func(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
		url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
		transport, upgrader, err := spdy.RoundTripperFor(cfg)
		if err != nil {
			return nil, err
		}
		websocket, err := portforward.NewSPDYOverWebsocketDialer(url, cfg)
		if err != nil {
			return nil, err
		}
		dialer := portforward.NewFallbackDialer(websocket, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		type dialled struct {
			conn net.Conn
			err  error
		}
		result := make(chan dialled, 1)
		go func() {
			conn, err := open(dialer, namespace+"/"+pod, port)
			result <- dialled{conn, err}
		}()
		select {
		case d := <-result:
			return d.conn, d.err
		case <-ctx.Done():
			go func() {
				if d := <-result; d.conn != nil {
					_ = d.conn.Close()
				}
			}()
			return nil, ctx.Err()
		}
	}
}

// open asks for two streams, as the protocol has it: one for the data, one on which the other end says what went wrong.
func open(dialer httpstream.Dialer, pod string, port int) (net.Conn, error) {
	over, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s through the API server: %w", pod, err)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	trouble, err := over.CreateStream(headers)
	if err == nil {
		_ = trouble.Close() // nothing is said on it from here
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = over.CreateStream(headers); err == nil {
			s := &stream{Stream: data, over: over, said: make(chan string, 1)}
			go func() {
				b, _ := io.ReadAll(io.LimitReader(trouble, 4<<10))
				s.said <- string(b)
			}()
			return s, nil
		}
	}
	_ = over.Close()
	return nil, fmt.Errorf("reach port %d of pod %s: %w", port, pod, err)
}

// stream is a forwarded connection as a net.Conn.
type stream struct {
	httpstream.Stream
	over httpstream.Connection
	said chan string
}

// Read tells why the other end gave up, if it said so.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		select {
		case why := <-s.said:
			s.said <- why
			if why != "" {
				return 0, errors.New(why)
			}
		case <-time.After(100 * time.Millisecond):
		}
	}
	return n, err
}

// Close ends both directions, and the connection under it, which nobody shares.
func (s *stream) Close() error {
	_ = s.Stream.Close()
	return s.over.Close()
}

// forwarded is the address of either end.
type forwarded struct{}

func (forwarded) Network() string { return "portforward" }
func (forwarded) String() string  { return "a pod" }

// LocalAddr implements net.Conn.
func (s *stream) LocalAddr() net.Addr { return forwarded{} }

// RemoteAddr implements net.Conn.
func (s *stream) RemoteAddr() net.Addr { return forwarded{} }

// SetDeadline implements net.Conn. There are no deadlines on such a stream: who wants it to end closes it.
func (s *stream) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
