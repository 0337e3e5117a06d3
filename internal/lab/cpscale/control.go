package cpscale

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// control is a running control plane on loopback.
type control struct {
	cmd     *exec.Cmd
	address string
	// token makes what the proxy of node i proves itself with.
	token func(i int) (string, error)
	tls   *tls.Config
	said  *tail
	ended chan struct{}
	exit  error
}

const (
	// startTime bounds how long the control plane may take to read its objects.
	startTime = 2 * time.Minute
	// stopTime is how long it may take to end when asked.
	stopTime = 15 * time.Second
	issuer   = "lateen-local"
)

// startControl runs lateen-control with flags that say where its objects are, and returns when it serves. Its state is in dir, and the tokens
// that c.token makes are good, unless it has all that in a cluster: then root says where the root certificate is.
func startControl(ctx context.Context, program, dir string, flags []string, root func() ([]byte, error)) (_ *control, err error) {
	c := &control{said: &tail{}, ended: make(chan struct{})}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c.token = func(i int) (string, error) { return signed(key, i) }
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	keyFile, rootFile := filepath.Join(dir, "token-key.pem"), filepath.Join(dir, "root-cert.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	pages := ""
	for _, address := range []*string{&c.address, &pages} {
		if *address, err = freePort(); err != nil {
			return nil, err
		}
	}
	if root == nil {
		flags = append(flags, "--data-dir", filepath.Join(dir, "data"), "--token-key", keyFile, "--token-issuer", issuer, "--root-cert-out", rootFile)
		root = func() ([]byte, error) { return os.ReadFile(rootFile) }
	}
	c.cmd = exec.Command(program, append(flags, "--listen", c.address, "--debug-listen", pages, "--log-level", "warn")...)
	c.cmd.Stdout, c.cmd.Stderr = c.said, c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	go func() {
		c.exit = c.cmd.Wait()
		close(c.ended)
	}()
	if err := c.await(ctx, "http://"+pages+"/ready"); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	certificate, err := root()
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return nil, errors.Join(errors.New("what the control plane published as its root is no certificate"), c.stop())
	}
	c.tls = &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
	return c, nil
}

// freePort finds a port that nobody has now, and none of those that the kernel gives to whoever connects. Should somebody take it before the
// control plane does, that says so.
func freePort() (string, error) {
	var err error
	for range 1000 {
		var l net.Listener
		if l, err = net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(20000+mathrand.IntN(12000))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}

func (c *control) await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-c.ended:
			return fmt.Errorf("the control plane ended before it served: %w: %s", c.exit, c.said)
		case <-ctx.Done():
			return fmt.Errorf("the control plane does not serve: %w: %s", ctx.Err(), c.said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends it and waits until it has.
func (c *control) stop() error {
	select {
	case <-c.ended:
		return fmt.Errorf("the control plane ended by itself: %w: %s", c.exit, c.said)
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
	case <-time.After(stopTime):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
	return nil
}

// signed is what the proxy of node i proves itself with where no API server issues tokens.
func signed(key *ecdsa.PrivateKey, i int) (string, error) {
	now := time.Now()
	node := nodeName(i)
	return jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": []string{"istio-ca"}, "iss": issuer, "sub": "system:serviceaccount:istio-system:ztunnel", "iat": now.Unix(), "exp": now.Add(24 * time.Hour).Unix(),
		"kubernetes.io": map[string]any{"namespace": "istio-system", "serviceaccount": map[string]any{"name": "ztunnel"},
			"pod": map[string]any{"name": "ztunnel-" + node, "uid": "z-" + node}, "node": map[string]any{"name": node}},
	}).SignedString(key)
}

// tail keeps the end of what a program says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

// String is the last lines of it, in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
