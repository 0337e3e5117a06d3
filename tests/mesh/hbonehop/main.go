// Command hbonehop is what node proxies may find on their way: a waypoint or a gateway, made of Go's TLS and HTTP/2 and of
// no code of the proxies. It writes down who tunnels what to it, one JSON object a line, and answers or passes on the bytes;
// it decides nothing.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
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
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// seen is what is written down of one tunnelled connection.
type seen struct {
	Peer      string      `json:"peer"`
	Source    string      `json:"source"`
	Authority string      `json:"authority"`
	Headers   http.Header `json:"headers"`
	Group     string      `json:"group"`
	// First are the first bytes of a plain connection, in hex.
	First string `json:"first,omitempty"`
}

type hop struct {
	pass   string
	status int
	mu     sync.Mutex
	out    *json.Encoder
}

func main() {
	caCert := flag.String("ca-cert", "", "PEM of the mesh's root")
	caKey := flag.String("ca-key", "", "PEM of its key")
	identity := flag.String("identity", "", "SPIFFE URI to be")
	listen := flag.String("listen", ":15008", "where tunnels are taken")
	plain := flag.String("plain", "", "instead: take plain connections here, write down how they begin, and answer as an HTTP server")
	begin := flag.Int("begin", 28, "how many bytes a plain connection begins with")
	pass := flag.String("pass", "", "address to which all bytes are passed on; empty: they are answered")
	status := flag.Int("status", http.StatusOK, "answer to CONNECT")
	record := flag.String("record", "", "file to write to")
	flag.Parse()
	file, err := os.Create(*record)
	if err == nil {
		h := &hop{pass: *pass, status: *status, out: json.NewEncoder(file)}
		if *plain != "" {
			err = h.servePlain(*plain, *begin)
		} else {
			err = h.serve(*listen, *caCert, *caKey, *identity)
		}
	}
	fmt.Fprintln(os.Stderr, "hbonehop:", err)
	os.Exit(1)
}

func (h *hop) note(s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Encode(s); err != nil {
		fmt.Fprintln(os.Stderr, "hbonehop:", err)
	}
}

func (h *hop) serve(address, caCert, caKey, identity string) error {
	config, err := tlsConfig(caCert, caKey, identity)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		raw, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			conn := tls.Server(raw, config)
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := conn.HandshakeContext(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "hbonehop:", err)
				return
			}
			state := conn.ConnectionState()
			peer := "nobody"
			for _, uri := range state.PeerCertificates[0].URIs {
				peer = uri.String()
			}
			source, _, _ := net.SplitHostPort(raw.RemoteAddr().String())
			(&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.note(seen{Peer: peer, Source: source, Authority: r.Host, Headers: r.Header, Group: state.CurveID.String()})
				h.tunnel(w, r)
			})})
		}()
	}
}

// tunnel answers or passes on one CONNECT.
func (h *hop) tunnel(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || h.status != http.StatusOK {
		w.WriteHeader(cmp.Or(h.status, http.StatusMethodNotAllowed))
		return
	}
	if h.pass == "" {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		_ = answer(w, bufio.NewReader(r.Body))
		return
	}
	onward, err := net.DialTimeout("tcp", h.pass, 5*time.Second)
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer onward.Close()
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	go func() {
		_, _ = io.Copy(onward, r.Body)
		_ = onward.(*net.TCPConn).CloseWrite()
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := onward.Read(b)
		if n > 0 {
			if _, err := w.Write(b[:n]); err != nil {
				return
			}
			_ = flush.Flush()
		}
		if err != nil {
			return
		}
	}
}

// answer reads one HTTP/1.1 request and says what it was.
func answer(w io.Writer, from *bufio.Reader) error {
	req, err := http.ReadRequest(from)
	if err != nil {
		return err
	}
	body := "hop " + req.Host + "\n"
	_, err = fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return err
}

func (h *hop) servePlain(address string, begin int) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			first, reader, err := head(conn, begin)
			source, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			h.note(seen{Source: source, First: hex.EncodeToString(first)})
			if err == nil {
				_ = answer(conn, reader)
			}
		}()
	}
}

// head reads what comes before the request: a PROXY header of version 2 with all its fields, or as many bytes as were asked for.
func head(conn io.Reader, begin int) ([]byte, *bufio.Reader, error) {
	reader := bufio.NewReader(conn)
	if lead, err := reader.Peek(16); err == nil && string(lead[:12]) == "\r\n\r\n\x00\r\nQUIT\n" {
		first := make([]byte, 16+int(lead[14])<<8+int(lead[15]))
		_, err := io.ReadFull(reader, first)
		return first, reader, err
	}
	first, err := reader.Peek(begin)
	return first, reader, err
}

func tlsConfig(caCert, caKey, identity string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(caCert, caKey)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the root's key cannot sign")
	}
	id, err := url.Parse(identity)
	if err != nil {
		return nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Minute), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{id},
	}, root, own.Public(), signer)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}))
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}},
	}, nil
}
