package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// transport carries requests to an engine and their answers, each on a connection of its own. It is safe for concurrent use.
type transport struct {
	dial func(context.Context) (net.Conn, error)
	http *http.Client
}

func newTransport(dial func(context.Context) (net.Conn, error)) *transport {
	return &transport{dial: dial, http: &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableKeepAlives: true,
	}}}
}

// dialSocket connects to the engine of a mesh that listens on a socket.
func dialSocket(ctx context.Context, mesh, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: no engine listens on %s; start one with `lateen up --name %s`", ErrNotRunning, socket, mesh)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, &Error{Code: http.StatusForbidden, Message: "the engine of mesh " + mesh + " answers root alone", Fix: "run the command with sudo"}
	}
	return conn, err
}

// upgrade sends a request and turns the connection into a raw stream both ways.
func (t *transport) upgrade(ctx context.Context, path string, in any) (net.Conn, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, cause(ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine"+path, bytes.NewReader(body))
	if err != nil {
		conn.Close()
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "lateen-stream")
	if err := req.Write(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask the engine: %w", cause(ctx, err))
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask the engine: %w", cause(ctx, err))
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer conn.Close()
		return nil, readError(resp)
	}
	return &bufferedConn{Conn: conn, r: br}, nil
}

// cause is why a call failed: its context if that ended, since closing the connection is how a context ends a call.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// bufferedConn gives back first what was read together with the response's head.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.r.Read(p) }

// CloseWrite ends the sending direction only.
func (b *bufferedConn) CloseWrite() error {
	if cw, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return b.Conn.Close()
}

// call sends a request and reads its answer as JSON into out.
func (t *transport) call(ctx context.Context, method, path string, q url.Values, in, out any) error {
	body, err := t.open(ctx, method, path, q, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("read the engine's answer to %s: %w", path, err)
	}
	return nil
}

// read returns a whole answer as its bytes.
func (t *transport) read(ctx context.Context, path string) ([]byte, error) {
	body, err := t.open(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return whole(body, longestAnswer)
}

// longestAnswer is how much an engine, or a part of the mesh behind it, may say at once.
const longestAnswer = 256 << 20

// whole reads an answer that is not longer than it may be.
func whole(r io.Reader, longest int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, longest+1))
	if err == nil && int64(len(b)) > longest {
		err = fmt.Errorf("the answer is longer than %d MiB", longest>>20)
	}
	return b, err
}

// stream opens an answer that comes over time. The caller closes it.
func (t *transport) stream(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	return t.open(ctx, http.MethodGet, path, q, nil)
}

// open sends a request and returns the body of its answer. The caller closes it.
func (t *transport) open(ctx context.Context, method, path string, q url.Values, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	u := "http://engine" + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the made-up URL tells users nothing
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp.Body, nil
}

func readError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &Error{}
	if json.Unmarshal(b, e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("the engine answered %s: %s", resp.Status, bytes.TrimSpace(b))
	}
	e.Code = resp.StatusCode
	return e
}
