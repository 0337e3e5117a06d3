package wire

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// goServer is Go's HTTP/2 over Go's TLS; hello is the last ClientHello.
type goServer struct {
	address string
	mu      sync.Mutex
	hello   tls.ClientHelloInfo
	state   tls.ConnectionState
}

func startGoServer(t *testing.T, ca *authority, own *leaf, settings *http2.Server, handler http.HandlerFunc) *goServer {
	t.Helper()
	s := &goServer{}
	config := &tls.Config{
		Certificates: []tls.Certificate{own.tls()},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.pool(),
		NextProtos:   []string{"h2"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hello = *hello
			return nil, nil
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				conn := tls.Server(raw, config)
				defer conn.Close()
				if conn.HandshakeContext(t.Context()) != nil {
					return
				}
				s.mu.Lock()
				s.state = conn.ConnectionState()
				s.mu.Unlock()
				settings.ServeConn(conn, &http2.ServeConnOpts{Handler: handler})
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return s
}

// connectTo runs our client, feeds it input and gives what came out of standard output and error.
func connectTo(t *testing.T, own *leaf, to, target string, input []byte, expected ...string) (string, string, error) {
	t.Helper()
	key, chain := own.files(t)
	command := peerCommand(t, append([]string{"connect", key, chain, to, target}, expected...)...)
	command.Stdin = bytes.NewReader(input)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	timer := time.AfterFunc(patience, func() { command.Process.Kill() })
	defer timer.Stop()
	err := command.Run()
	return out.String(), complaints.String(), err
}

func echoHandler(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("baggage", "k8s.deployment.name=server")
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(buffer)
		w.Write(buffer[:n])
		http.NewResponseController(w).Flush()
		if err != nil {
			return
		}
	}
}

func TestClientSpeaksAsTheMeshExpects(t *testing.T) {
	ca := newAuthority(t)
	var mu sync.Mutex
	var seen *http.Request
	to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), &http2.Server{}, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = r.Clone(r.Context())
		mu.Unlock()
		echoHandler(w, r)
	})
	sent := make([]byte, 10<<20)
	rand.Read(sent)
	out, complaints, err := connectTo(t, ca.issue(client, time.Now().Add(time.Hour)), to.address, "10.0.0.7:8080", sent, "spiffe://cluster.local/ns/default/sa/other", server)
	if err != nil {
		t.Fatalf("%v: %s", err, complaints)
	}
	first, got, _ := strings.Cut(out, "\n")
	if want := "connected " + server + " k8s.deployment.name=server"; first != want {
		t.Errorf("%q, want %q", first, want)
	}
	if got != string(sent) {
		t.Errorf("%d bytes came back for %d, or changed", len(got), len(sent))
	}
	if want := fmt.Sprintf("relayed sent=%d received=%d", len(sent), len(sent)); !strings.Contains(complaints, want) {
		t.Errorf("%q, want %q", complaints, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen.Method != http.MethodConnect || seen.Host != "10.0.0.7:8080" || seen.URL.Path != "" {
		t.Errorf("request %s %s path %q", seen.Method, seen.Host, seen.URL.Path)
	}
	if got := seen.Header.Get("baggage"); got != "k8s.namespace.name=default,k8s.deployment.name=client" {
		t.Errorf("baggage %q", got)
	}
	if got := seen.Header.Get("forwarded"); !strings.HasPrefix(got, `for="127.0.0.1:`) || !strings.HasSuffix(got, `";host=service.test`) {
		t.Errorf("forwarded %q", got)
	}
	if got := seen.Header.Get("traceparent"); len(got) != 55 || !strings.HasPrefix(got, "00-") {
		t.Errorf("traceparent %q", got)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.hello.ServerName != "" {
		t.Errorf("sends server name %q", to.hello.ServerName)
	}
	if len(to.hello.SupportedVersions) != 1 || to.hello.SupportedVersions[0] != tls.VersionTLS13 {
		t.Errorf("offers versions %x", to.hello.SupportedVersions)
	}
	if got := to.hello.SupportedProtos; len(got) != 1 || got[0] != "h2" {
		t.Errorf("offers protocols %q", got)
	}
	if got := to.hello.CipherSuites; len(got) < 2 || got[0] != tls.TLS_AES_256_GCM_SHA384 || got[1] != tls.TLS_AES_128_GCM_SHA256 {
		t.Errorf("offers cipher suites %x", got)
	}
	if uris := to.state.PeerCertificates[0].URIs; len(uris) != 1 || uris[0].String() != client {
		t.Errorf("presents %v", uris)
	}
}

func TestClientTakesAnEndWithAReset(t *testing.T) {
	ca := newAuthority(t)
	// Go resets a stream whose request it did not read to the end with NO_ERROR, as Envoy does.
	to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), &http2.Server{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.Write(bytes.Repeat([]byte("all there is\n"), 50_000))
	})
	out, complaints, err := connectTo(t, ca.issue(client, time.Now().Add(time.Hour)), to.address, "10.0.0.7:8080", nil, server)
	if err != nil {
		t.Fatalf("%v: %s", err, complaints)
	}
	if _, got, _ := strings.Cut(out, "\n"); got != strings.Repeat("all there is\n", 50_000) {
		t.Errorf("%d bytes, or changed", len(got))
	}
}

func TestClientReportsRefusals(t *testing.T) {
	ca := newAuthority(t)
	for status, said := range map[int]string{
		http.StatusUnauthorized:       "http status 401: its authorization policy denies it",
		http.StatusServiceUnavailable: "http status 503: it could not reach the workload",
		http.StatusBadRequest:         "http status 400",
	} {
		to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), &http2.Server{}, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		})
		_, complaints, err := connectTo(t, ca.issue(client, time.Now().Add(time.Hour)), to.address, "10.0.0.7:8080", nil, server)
		if err == nil || !strings.Contains(complaints, said) {
			t.Errorf("status %d: %v: %q", status, err, complaints)
		}
	}
}

func TestClientRefusesServersThatAreNotExpected(t *testing.T) {
	ca := newAuthority(t)
	own := ca.issue(client, time.Now().Add(time.Hour))
	cases := []struct {
		name string
		leaf *leaf
		said string
	}{
		{"another workload", ca.issue("spiffe://cluster.local/ns/default/sa/evil", time.Now().Add(time.Hour)), "peer is spiffe://cluster.local/ns/default/sa/evil, expected " + server},
		{"expired", ca.issue(server, time.Now().Add(-time.Hour)), "expired 60 min ago"},
		{"another authority", newAuthority(t).issue(server, time.Now().Add(time.Hour)), "unknown authority"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			to := startGoServer(t, ca, c.leaf, &http2.Server{}, echoHandler)
			_, complaints, err := connectTo(t, own, to.address, "10.0.0.7:8080", nil, server)
			if err == nil || !strings.Contains(complaints, c.said) {
				t.Errorf("%v: %q, want %q", err, complaints, c.said)
			}
		})
	}
}

func TestClientIsToldWhyAServerRefusesIt(t *testing.T) {
	ca := newAuthority(t)
	to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), &http2.Server{}, echoHandler)
	// A client that trusts the server and whom the server does not know.
	stranger := newAuthority(t).issue(client, time.Now().Add(time.Hour))
	stranger.root = ca.cert
	_, complaints, err := connectTo(t, stranger, to.address, "10.0.0.7:8080", nil, server)
	if err == nil || !strings.Contains(complaints, "peer refused the handshake") {
		t.Errorf("%v: %q", err, complaints)
	}
}

func TestClientRespectsSmallWindowsAndFrames(t *testing.T) {
	ca := newAuthority(t)
	settings := &http2.Server{
		MaxConcurrentStreams:         1,
		MaxReadFrameSize:             16 << 10,
		MaxUploadBufferPerConnection: 64 << 10,
		MaxUploadBufferPerStream:     16 << 10,
	}
	to := startGoServer(t, ca, ca.issue(server, time.Now().Add(time.Hour)), settings, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	out, complaints, err := connectTo(t, ca.issue(client, time.Now().Add(time.Hour)), to.address, "10.0.0.7:8080", make([]byte, 3<<20), server)
	if err != nil {
		t.Fatalf("%v: %s", err, complaints)
	}
	if _, got, _ := strings.Cut(out, "\n"); got != "3145728 <nil>" {
		t.Errorf("the server got %q", got)
	}
}
