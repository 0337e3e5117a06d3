package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const (
	subprotocol = "echo.lateen.test"
	byeCode     = 4000
	byeReason   = "bye"
	// patience is how long a peer may take for anything.
	patience = 30 * time.Second
)

// webSocketCheck is what one WebSocket does.
type webSocketCheck struct {
	name   string
	path   string
	dialer websocket.Dialer
	do     func(*websocket.Conn) error
}

// askWebSockets runs the checks and prints a line of each.
func askWebSockets(ctx context.Context, url string) error {
	failed := 0
	for _, c := range webSocketChecks() {
		if err := c.run(ctx, strings.TrimSuffix(url, "/")); err != nil {
			failed++
			fmt.Printf("not ok - %s: %v\n", c.name, err)
			continue
		}
		fmt.Println("ok -", c.name)
	}
	if failed > 0 {
		return fmt.Errorf("%d checks of WebSockets failed", failed)
	}
	return nil
}

func (c webSocketCheck) run(ctx context.Context, url string) error {
	c.dialer.HandshakeTimeout = patience
	conn, answer, err := c.dialer.DialContext(ctx, url+"/ws/"+c.path, nil)
	if c.path == "refused" {
		switch {
		case err == nil:
			conn.Close()
			return errors.New("it was opened")
		case answer == nil:
			return err
		case answer.StatusCode != http.StatusForbidden:
			return fmt.Errorf("status %d", answer.StatusCode)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	return c.do(conn)
}

func webSocketChecks() []webSocketCheck {
	var checks []webSocketCheck
	for _, size := range []int{0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20} {
		checks = append(checks,
			webSocketCheck{name: fmt.Sprintf("text of %d bytes comes back", size), do: func(conn *websocket.Conn) error {
				return roundTrip(conn, websocket.TextMessage, size)
			}},
			webSocketCheck{name: fmt.Sprintf("%d bytes come back", size), do: func(conn *websocket.Conn) error {
				return roundTrip(conn, websocket.BinaryMessage, size)
			}})
	}
	checks = append(checks,
		webSocketCheck{name: "a message in frames of 100 bytes comes back", dialer: websocket.Dialer{WriteBufferSize: 100}, do: func(conn *websocket.Conn) error {
			return roundTrip(conn, websocket.TextMessage, 5000)
		}},
		webSocketCheck{name: "a hundred messages that are under way at once come back in order", do: inOrder},
		webSocketCheck{name: "compressed messages come back", dialer: websocket.Dialer{EnableCompression: true}, do: func(conn *websocket.Conn) error {
			for range 20 {
				if err := roundTrip(conn, websocket.TextMessage, 20_000); err != nil {
					return err
				}
			}
			return nil
		}},
		webSocketCheck{name: "a subprotocol is chosen", dialer: websocket.Dialer{Subprotocols: []string{"none.lateen.test", subprotocol}}, do: func(conn *websocket.Conn) error {
			if got := conn.Subprotocol(); got != subprotocol {
				return fmt.Errorf("subprotocol %q", got)
			}
			return roundTrip(conn, websocket.TextMessage, 10)
		}},
		webSocketCheck{name: "a ping is answered", do: ping},
		webSocketCheck{name: "a refusal arrives with its status", path: "refused"},
		webSocketCheck{name: "the server's close arrives with its code and reason", path: "bye", do: func(conn *websocket.Conn) error {
			return closedBy(conn, byeCode, byeReason)
		}},
	)
	for _, code := range []int{1000, 1001, 1003, 1008, 1011, 3000, 4999} {
		checks = append(checks, webSocketCheck{name: fmt.Sprintf("a close with code %d is answered with it", code), do: func(conn *websocket.Conn) error {
			if err := conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, "enough"), time.Now().Add(patience)); err != nil {
				return err
			}
			return closedBy(conn, code, "")
		}})
	}
	return checks
}

// roundTrip sends a message and wants it back.
func roundTrip(conn *websocket.Conn, kind, size int) error {
	sent := bytes.Repeat([]byte("a€z "), size/6+1)[:size]
	if kind == websocket.TextMessage {
		sent = bytes.Repeat([]byte("w"), size)
	}
	if err := conn.WriteMessage(kind, sent); err != nil {
		return err
	}
	return wants(conn, kind, sent)
}

func wants(conn *websocket.Conn, kind int, sent []byte) error {
	switch got, message, err := conn.ReadMessage(); {
	case err != nil:
		return err
	case got != kind || !bytes.Equal(message, sent):
		return fmt.Errorf("%d bytes of kind %d came back for %d of kind %d, or others", len(message), got, len(sent), kind)
	}
	return nil
}

func inOrder(conn *websocket.Conn) error {
	message := func(n int) []byte { return fmt.Appendf(nil, "message %d %s", n, strings.Repeat("x", n*20)) }
	written := make(chan error, 1)
	go func() {
		for n := range 100 {
			if err := conn.WriteMessage(websocket.TextMessage, message(n)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for n := range 100 {
		if err := wants(conn, websocket.TextMessage, message(n)); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
	return <-written
}

func ping(conn *websocket.Conn) error {
	var got string
	conn.SetPongHandler(func(data string) error { got = data; return nil })
	if err := conn.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(patience)); err != nil {
		return err
	}
	// Pongs are handled while a message is read; this one comes behind it.
	if err := roundTrip(conn, websocket.TextMessage, 10); err != nil {
		return err
	}
	if got != "are you there" {
		return fmt.Errorf("the pong has %q", got)
	}
	return nil
}

func closedBy(conn *websocket.Conn, code int, reason string) error {
	_, _, err := conn.ReadMessage()
	var closed *websocket.CloseError
	switch {
	case !errors.As(err, &closed):
		return fmt.Errorf("no close arrived: %w", err)
	case closed.Code != code || closed.Text != reason:
		return fmt.Errorf("closed with %d %q", closed.Code, closed.Text)
	}
	return nil
}
