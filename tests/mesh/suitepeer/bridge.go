package main

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/net/http2"
)

// acceptSuffix is what a server of WebSockets adds to the client's key (RFC 6455 §1.3).
const acceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// handshakeFields are the fields of a handshake that mean the same over HTTP/1.1 and HTTP/2 (RFC 8441 §5).
var handshakeFields = []string{"Origin", "Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol", "Sec-WebSocket-Version", "User-Agent"}

// bridge opens each WebSocket that comes over HTTP/1.1 at the target by extended CONNECT over HTTP/2, and relays its bytes as they are.
// All share one connection to the target.
func bridge(ctx context.Context, listener net.Listener, target string) error {
	go func() {
		<-ctx.Done()
		listener.Close()
	}()
	transport := &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		},
	}
	fmt.Println("listening", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := across(ctx, conn.(*net.TCPConn), transport, target); err != nil {
				fmt.Println("a bridge ended:", err)
			}
		}()
	}
}

// across carries one WebSocket.
func across(ctx context.Context, conn *net.TCPConn, transport *http2.Transport, target string) error {
	defer conn.Close()
	below := bufio.NewReader(conn)
	asked, err := http.ReadRequest(below)
	if err != nil {
		return err
	}
	if !strings.EqualFold(asked.Header.Get("Upgrade"), "websocket") {
		fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return fmt.Errorf("%s %s asks for no WebSocket", asked.Method, asked.URL)
	}
	content, up := io.Pipe()
	defer up.Close()
	request := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Scheme: "http", Host: target, Path: asked.URL.Path, RawQuery: asked.URL.RawQuery},
		Host:   target,
		Header: http.Header{":protocol": {"websocket"}},
		Body:   content,
	}
	copyFields(request.Header, asked.Header, handshakeFields)
	answer, err := transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		answer.Proto, answer.ProtoMajor, answer.ProtoMinor, answer.Close = "HTTP/1.1", 1, 1, true
		return answer.Write(conn)
	}
	digest := sha1.Sum([]byte(asked.Header.Get("Sec-WebSocket-Key") + acceptSuffix))
	accepted := http.Header{"Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(digest[:])}, "Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	copyFields(accepted, answer.Header, []string{"Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol", "Server"})
	if _, err := fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n"); err != nil {
		return err
	}
	if err := accepted.Write(conn); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "\r\n"); err != nil {
		return err
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := io.Copy(up, below)
		up.CloseWithError(err) // nil is the end of the stream, an error its reset
	})
	if _, err := io.Copy(conn, answer.Body); err != nil {
		conn.SetLinger(0) // the client sees a reset, as the bridge did
		conn.Close()
		sending.Wait()
		return err
	}
	conn.CloseWrite()
	sending.Wait()
	return nil
}

func copyFields(to, from http.Header, names []string) {
	for _, name := range names {
		if values := from.Values(name); len(values) > 0 {
			to[http.CanonicalHeaderKey(name)] = values
		}
	}
}
