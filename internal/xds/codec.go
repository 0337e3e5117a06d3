package xds

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for everything but frames
	"google.golang.org/grpc/mem"
)

// frameCodec sends responses as the bytes they already are and leaves every other message to the standard codec.
type frameCodec struct{ encoding.CodecV2 }

// Codec is the codec that a gRPC server needs for the discovery service to share encoded resources between its clients.
func Codec() encoding.CodecV2 {
	return frameCodec{encoding.GetCodecV2("proto")}
}

// Marshal implements encoding.CodecV2.
func (c frameCodec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*Response); ok {
		return r.Frame(), nil
	}
	return c.CodecV2.Marshal(v)
}
