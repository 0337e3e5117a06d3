package xds

import (
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/resourcelog"
)

// Response is one DeltaDiscoveryResponse. Its resources are the log's own bytes, shared with every other client.
type Response struct {
	Type      string
	Nonce     Nonce
	Resources []*resourcelog.Resource
	Removed   []string
}

// Field numbers of envoy.service.discovery.v3.DeltaDiscoveryResponse.
const (
	fieldSystemVersion = 1
	fieldTypeURL       = 4
	fieldNonce         = 5
	fieldRemoved       = 6
)

// Frame encodes the response without encoding, or copying, any resource again. The nonce comes last: who knows it has received it all.
func (r *Response) Frame() mem.BufferSlice {
	out := make(mem.BufferSlice, 0, len(r.Resources)+1)
	for _, res := range r.Resources {
		out = append(out, mem.SliceBuffer(res.Frame()))
	}
	var tail []byte
	tail = appendString(tail, fieldSystemVersion, strconv.FormatUint(r.Nonce.Generation, 10))
	tail = appendString(tail, fieldTypeURL, r.Type)
	for _, name := range r.Removed {
		tail = appendString(tail, fieldRemoved, name)
	}
	tail = appendString(tail, fieldNonce, r.Nonce.String())
	return append(out, mem.SliceBuffer(tail))
}

// size is the number of bytes of the response's resources.
func (r *Response) size() int {
	n := 0
	for _, res := range r.Resources {
		n += len(res.Frame())
	}
	return n
}

// length is about what the response takes on the wire, in bytes.
func (r *Response) length() int {
	const head = 256
	n := head + r.size()
	for _, name := range r.Removed {
		n += len(name) + 4
	}
	return n
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// Message decodes the response's frame, as a client would.
func (r *Response) Message() (*discovery.DeltaDiscoveryResponse, error) {
	out := &discovery.DeltaDiscoveryResponse{}
	if err := proto.Unmarshal(r.Frame().Materialize(), out); err != nil {
		return nil, err
	}
	return out, nil
}
