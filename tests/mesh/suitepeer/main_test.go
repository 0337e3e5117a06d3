package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The checks of WebSockets hold where nothing is between client and server, so what they find is the proxy's.
func TestWebSocketsPassTheirChecksWithoutAProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echoWebSocket))
	defer server.Close()
	if err := askWebSockets(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")); err != nil {
		t.Error(err)
	}
}

func TestTheBridgeRefusesWhatIsNoWebSocket(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bridge(ctx, listener, "127.0.0.1:1") }()
	defer func() { end(); <-ended }()
	response, err := http.Get("http://" + listener.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", response.StatusCode)
	}
}
