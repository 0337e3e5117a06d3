package wire

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// dial makes a TLS connection to our server; certs may be empty.
func dial(t *testing.T, to *serving, ca *authority, config *tls.Config, certs ...tls.Certificate) (*tls.Conn, error) {
	t.Helper()
	if config == nil {
		config = &tls.Config{}
	}
	config.Certificates = certs
	config.NextProtos = []string{"h2"}
	// The name is not what identifies a workload: the chain and the URI are checked by hand.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		peer := state.PeerCertificates[0]
		if _, err := peer.Verify(x509.VerifyOptions{Roots: ca.pool()}); err != nil {
			return err
		}
		if len(peer.URIs) != 1 || peer.URIs[0].String() != server {
			t.Errorf("the server is %v", peer.URIs)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { raw.Close() })
	return raw.(*tls.Conn), nil
}

func tunnelTo(t *testing.T, to *serving, ca *authority, own *leaf) *http2.ClientConn {
	t.Helper()
	raw, err := dial(t, to, ca, nil, own.tls())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&http2.Transport{}).NewClientConn(raw)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// open sends a CONNECT whose body is the pipe's reading end.
func open(t *testing.T, conn *http2.ClientConn, target string, headers ...string) (*http.Response, *io.PipeWriter) {
	t.Helper()
	reader, writer := io.Pipe()
	request := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Host: target},
		Host:   target,
		Header: http.Header{},
		Body:   reader,
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := conn.RoundTrip(request.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close(); writer.Close() })
	return response, writer
}

func world(t *testing.T) (*authority, *serving) {
	t.Helper()
	ca := newAuthority(t)
	return ca, startServer(t, ca.issue(server, time.Now().Add(time.Hour)))
}

func TestServerEchoesTenMegabytesAndHalfCloses(t *testing.T) {
	ca, to := world(t)
	conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
	response, writer := open(t, conn, "echo.test:80",
		"baggage", "k8s.namespace.name=default,k8s.deployment.name=client", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if response.StatusCode != http.StatusOK || response.Header.Get("baggage") != "service.name=echo" {
		t.Fatalf("status %d, baggage %q", response.StatusCode, response.Header.Get("baggage"))
	}
	sent := make([]byte, 10<<20)
	rand.Read(sent)
	go func() {
		writer.Write(sent)
		writer.Close()
	}()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes came back for %d, or changed", len(got), len(sent))
	}
	line := to.said.wait(t, "request "+client, "echo.test:80")
	if !strings.Contains(line, "k8s.deployment.name=client") {
		t.Errorf("baggage is lost: %s", line)
	}
}

func TestServerEndsFirst(t *testing.T) {
	ca, to := world(t)
	conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
	response, writer := open(t, conn, "source.test:5000")
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1024)
	for i := range block {
		block[i] = byte(i)
	}
	if want := bytes.Repeat(block, 5000); sha256.Sum256(got) != sha256.Sum256(want) {
		t.Fatalf("%d bytes for %d, or changed", len(got), len(want))
	}
	writer.Close()
}

func TestServerRefuses(t *testing.T) {
	ca, to := world(t)
	conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
	for target, status := range map[string]int{"denied.test:80": 401, "10.0.0.1:80": 503, "echo.test:0": 400} {
		if response, _ := open(t, conn, target); response.StatusCode != status {
			t.Errorf("%s: status %d, want %d", target, response.StatusCode, status)
		}
	}
	get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://echo.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := conn.RoundTrip(get)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: status %d", response.StatusCode)
	}
	// The tunnel is as good as before.
	if response, _ := open(t, conn, "source.test:1"); response.StatusCode != http.StatusOK {
		t.Errorf("status %d after the refusals", response.StatusCode)
	}
}

func TestServerAnswersPings(t *testing.T) {
	ca, to := world(t)
	conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 10 {
		if err := conn.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServerCarriesManyStreamsAtOnce(t *testing.T) {
	ca, to := world(t)
	conn := tunnelTo(t, to, ca, ca.issue(client, time.Now().Add(time.Hour)))
	var all sync.WaitGroup
	for range 100 {
		response, writer := open(t, conn, "echo.test:80")
		all.Go(func() {
			message, got := make([]byte, 3000), make([]byte, 3000)
			for range 20 {
				rand.Read(message)
				if _, err := writer.Write(message); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(response.Body, got); err != nil || !bytes.Equal(got, message) {
					t.Errorf("echo: %v", err)
					return
				}
			}
			writer.Close()
		})
	}
	all.Wait()
}

func TestServerRefusesPeersThatAreNotOfTheMesh(t *testing.T) {
	ca, to := world(t)
	tomorrow := time.Now().Add(24 * time.Hour)
	cases := []struct {
		name  string
		certs []tls.Certificate
		alert string
		said  string
	}{
		{"no certificate", nil, "certificate required", "sent no certificate"},
		{"expired", []tls.Certificate{ca.issue(client, time.Now().Add(-time.Hour)).tls()}, "expired certificate", "expired 60 min ago"},
		{"not yet valid", []tls.Certificate{ca.issue(client, tomorrow).tls()}, "expired certificate", "not valid yet"},
		{"another trust domain", []tls.Certificate{ca.issue("spiffe://other.example/ns/default/sa/client", time.Now().Add(time.Hour)).tls()},
			"unknown certificate", "spiffe://other.example/ns/default/sa/client, of another trust domain than cluster.local"},
		{"another authority", []tls.Certificate{newAuthority(t).issue(client, time.Now().Add(time.Hour)).tls()},
			"unknown certificate authority", "unknown authority"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			conn, err := dial(t, to, ca, nil, c.certs...)
			if err == nil {
				// With TLS 1.3 the verdict comes after the client's handshake.
				_, err = conn.Read(make([]byte, 1))
			}
			if err == nil || !strings.Contains(err.Error(), c.alert) {
				t.Errorf("the client is told %v, want %q", err, c.alert)
			}
			to.said.wait(t, "error: ", c.said)
		})
	}
	t.Run("TLS 1.2", func(t *testing.T) {
		own := ca.issue(client, time.Now().Add(time.Hour))
		_, err := dial(t, to, ca, &tls.Config{MaxVersion: tls.VersionTLS12}, own.tls())
		if err == nil || !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("the client is told %v", err)
		}
		to.said.wait(t, "error: ", "does not speak TLS 1.3")
	})
}
