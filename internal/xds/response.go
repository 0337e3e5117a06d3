package xds

import (
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/log"
)

// Response is one DeltaDiscoveryResponse. Its resources are the log's own bytes, shared with every other client.
type Response struct {
	Type      string
	Nonce     Nonce
	Resources []*log.Resource
	Removed   []string
}

// Field numbers of envoy.service.discovery.v3.DeltaDiscoveryResponse.
const (
	fieldSystemVersion = 1
	fieldTypeURL       = 4
	fieldNonce         = 5
	fieldRemoved       = 6
)

// Frame encodes the response without encoding, or copying, any resource again.
func (r *Response) Frame() mem.BufferSlice {
	var head []byte
	head = appendString(head, fieldSystemVersion, strconv.FormatUint(r.Nonce.Generation, 10))
	head = appendString(head, fieldTypeURL, r.Type)
	head = appendString(head, fieldNonce, r.Nonce.String())
	for _, name := range r.Removed {
		head = appendString(head, fieldRemoved, name)
	}
	out := make(mem.BufferSlice, 0, 1+len(r.Resources))
	out = append(out, mem.SliceBuffer(head))
	for _, res := range r.Resources {
		out = append(out, mem.SliceBuffer(res.Frame()))
	}
	return out
}

// size is the number of bytes of the response's resources.
func (r *Response) size() int {
	n := 0
	for _, res := range r.Resources {
		n += len(res.Frame())
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
