package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Addresses of the parts of the mesh, each in the network namespace named beside it.
const (
	controlDebug  = "127.0.0.1:15014" // in the fabric namespace
	agentHTTP     = "127.0.0.1:15014" // in the node's
	proxyAdmin    = "127.0.0.1:15000" // in the node's, and ztunnel's only
	proxyMetrics  = "127.0.0.1:15020"
	proxyReadyURL = "127.0.0.1:15021"
)

const (
	readyTimeout = 45 * time.Second
	// How often readiness is looked at: often while somebody waits for it, seldom once it is there.
	unreadyPoll = 50 * time.Millisecond
	readyPoll   = 2 * time.Second
	pollTimeout = 2 * time.Second
	// rehearsalTimeout bounds a dry run's question: the control plane compiles the whole mesh for it.
	rehearsalTimeout = 20 * time.Second
	// tooManyFailures is the number of failed starts in a row after which a daemon is reported as broken.
	tooManyFailures = 3
)

// maxPage bounds what is read from a part of the mesh, in bytes.
const maxPage = 256 << 20

// fetchControl gets a page of the control plane, which answers in the fabric's namespace, as the engine does.
func fetchControl(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", controlDebug)
	}, "http://"+controlDebug+path)
}

func controlIsReady(ctx context.Context) error {
	_, err := fetchControl(ctx, "/ready")
	return err
}

// fetchUnix gets a page from a unix socket.
func fetchUnix(ctx context.Context, socket, path string) ([]byte, error) {
	return get(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}, "http://socket"+path)
}

type dialer func(context.Context, string, string) (net.Conn, error)

func get(ctx context.Context, dial dialer, target string) ([]byte, error) {
	return ask(ctx, dial, http.MethodGet, target)
}

func ask(ctx context.Context, dial dialer, method, target string) ([]byte, error) {
	return send(ctx, dial, method, target, nil)
}

// send is ask with a body; nil sends none.
func send(ctx context.Context, dial dialer, method, target string, content io.Reader) ([]byte, error) {
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/yaml")
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: %s", resp.Status, strings.TrimSpace(string(body[:min(len(body), 300)])))
	}
	return body, nil
}
