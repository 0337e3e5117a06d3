package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// mostContent is the largest content that is echoed.
const mostContent = 8 << 20

// listenAndServe serves until the context ends. It says where once it listens.
func listenAndServe(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	fmt.Println("listening", listener.Addr())
	return server.Serve(listener)
}

// serve echoes content and trailers, over HTTP/1.1 and HTTP/2. A path that holds "hints" has an answer of status 103 before the last one,
// and a path that holds "trailers" a trailer. Below /ws/ there are WebSockets.
func serve(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/", echo)
	mux.HandleFunc("/ws/", echoWebSocket)
	return listenAndServe(ctx, address, mux)
}

func echo(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "hints") {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostContent))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(content) == 0 {
		content = []byte("no content came\n")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Version", r.Proto)
	w.WriteHeader(http.StatusOK)
	// Without this Go may give a length, behind which HTTP/1.1 has no trailers.
	http.NewResponseController(w).Flush()
	w.Write(content)
	for name, values := range r.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
	if strings.Contains(r.URL.Path, "trailers") {
		w.Header().Set(http.TrailerPrefix+"X-End", "there")
	}
}

var upgrader = websocket.Upgrader{Subprotocols: []string{subprotocol}, EnableCompression: true}

// echoWebSocket echoes messages. It refuses what asks for /ws/refused, and closes what asks for /ws/bye.
func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws/refused" {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	if r.URL.Path == "/ws/bye" {
		conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(byeCode, byeReason), time.Now().Add(patience))
		conn.ReadMessage() // the client's answer
		return
	}
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}
