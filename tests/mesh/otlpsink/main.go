// Command otlpsink is an OpenTelemetry collector that keeps nothing: it takes log records and spans (OTLP over gRPC) and
// prints each as one line of JSON. Acceptance scripts run it on a node; it reads the wire format field by field, by a
// library that the proxy does not use.
package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4317", "address")
	flag.Parse()
	if err := serve(*listen); err != nil {
		slog.Error("otlpsink ends", "error", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := &sink{out: json.NewEncoder(os.Stdout)}
	return grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(s.export)).Serve(listener)
}

// sink prints what any connection brings.
type sink struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (s *sink) export(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	read := map[string]func([]byte) (map[string]any, error){
		"/opentelemetry.proto.collector.logs.v1.LogsService/Export":   record,
		"/opentelemetry.proto.collector.trace.v1.TraceService/Export": span,
	}[method]
	if read == nil {
		return status.Errorf(codes.Unimplemented, "%s is not taken here", method)
	}
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	entries, err := entries(request, read)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%s: %v", method, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range entries {
		if err := s.out.Encode(entry); err != nil {
			return err
		}
	}
	// An empty response: everything was taken.
	return stream.SendMsg(&[]byte{})
}

// entries reads an export request: resource, then scope, then records or spans, for both signals at the same numbers.
func entries(request []byte, read func([]byte) (map[string]any, error)) ([]map[string]any, error) {
	var all []map[string]any
	err := each(request, 1, func(resourced []byte) error {
		resource := map[string]any{}
		err := each(resourced, 1, func(r []byte) error { return attributes(r, 1, resource) })
		if err != nil {
			return err
		}
		return each(resourced, 2, func(scoped []byte) error {
			return each(scoped, 2, func(b []byte) error {
				entry, err := read(b)
				if err != nil {
					return err
				}
				entry["resource"] = resource
				all = append(all, entry)
				return nil
			})
		})
	})
	return all, err
}

func record(b []byte) (map[string]any, error) {
	attrs := map[string]any{}
	fields, err := read(b)
	err = errors.Join(err, attributes(b, 6, attrs))
	return map[string]any{"kind": "log", "severity": fields.text(3), "trace": fields.hex(9), "span": fields.hex(10), "attributes": attrs}, err
}

func span(b []byte) (map[string]any, error) {
	attrs := map[string]any{}
	fields, err := read(b)
	err = errors.Join(err, attributes(b, 9, attrs))
	kind := map[uint64]string{2: "server", 3: "client"}[fields.number(6)]
	return map[string]any{"kind": "span", "side": kind, "trace": fields.hex(1), "span": fields.hex(2), "parent": fields.hex(4), "attributes": attrs}, err
}

// attributes reads the pairs in a field into a map; values are texts and whole numbers.
func attributes(b []byte, number int, into map[string]any) error {
	return each(b, number, func(pair []byte) error {
		fields, err := read(pair)
		if err != nil {
			return err
		}
		return each(pair, 2, func(value []byte) error {
			v, err := read(value)
			if _, isText := v[1]; isText {
				into[fields.text(1)] = v.text(1)
			} else {
				into[fields.text(1)] = v.number(3)
			}
			return err
		})
	})
}

func (f fields) hex(number int) string { return hex.EncodeToString([]byte(f.text(number))) }

// raw leaves messages as they are on the wire.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
