package cpscale

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// response is what a proxy must know of a DeltaDiscoveryResponse to answer it.
type response struct {
	typeURL, nonce string
	// resources and removed are the names in it.
	resources, removed []string
}

// reader takes gRPC messages from a stream of bytes, however it is cut, and lets go of what resources contain as it comes: thousands of
// proxies would otherwise hold the whole mesh thousands of times.
type reader struct {
	pending []byte // the beginning of what is not complete
	inside  bool   // of a message
	left    int    // bytes of the message
	within  bool   // within a resource of it
	inner   int    // bytes of the resource
	skip    int    // bytes of a field that is of no interest
	now     response
}

// Field numbers of envoy.service.discovery.v3.DeltaDiscoveryResponse, and of the Resource in it.
const (
	fieldResources    = 2
	fieldTypeURL      = 4
	fieldNonce        = 5
	fieldRemoved      = 6
	fieldResourceName = 3
)

const (
	prefix     = 5        // bytes before a gRPC message
	maxMessage = 64 << 20 // bytes
	maxString  = 8 << 10  // bytes of a name
)

var errCut = errors.New("a response is cut short within a field")

// feed takes bytes in and hands out each response that they complete.
func (r *reader) feed(data []byte, taken func(response) error) error {
	buf := data
	if len(r.pending) > 0 {
		buf = append(r.pending, data...)
	}
	for {
		n, done, err := r.step(buf)
		if err != nil {
			return err
		}
		buf = buf[n:]
		if done {
			now := r.now
			r.now, r.inside = response{}, false
			if err := taken(now); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			r.pending = append(r.pending[:0:0], buf...)
			return nil
		}
	}
}

// use counts bytes of the message as read.
func (r *reader) use(n int) {
	r.left -= n
	if r.within {
		if r.inner -= n; r.inner == 0 {
			r.within = false
		}
	}
}

// step takes one thing from the front of buf and says how many bytes it took: 0 if it needs more.
func (r *reader) step(buf []byte) (n int, done bool, err error) {
	switch {
	case !r.inside:
		if len(buf) < prefix {
			return 0, false, nil
		}
		size := binary.BigEndian.Uint32(buf[1:prefix])
		if buf[0] != 0 || size > maxMessage {
			return 0, false, fmt.Errorf("a message is compressed or of %d bytes; neither was agreed upon", size)
		}
		r.inside, r.left = true, int(size)
		return prefix, r.left == 0, nil
	case r.skip > 0:
		n = min(r.skip, len(buf))
		r.skip -= n
		r.use(n)
		return n, r.left == 0 && n > 0, nil
	}
	return r.field(buf)
}

func (r *reader) field(buf []byte) (n int, done bool, err error) {
	scope := r.left
	if r.within {
		scope = r.inner
	}
	// What is there of the scope; if it is all of it, what is missing will not come.
	whole := len(buf) >= scope
	if whole {
		buf = buf[:scope]
	}
	short := func() (int, bool, error) {
		if whole || len(buf) > maxString {
			return 0, false, errCut
		}
		return 0, false, nil
	}
	number, kind, n := protowire.ConsumeTag(buf)
	if n < 0 {
		return short()
	}
	if kind != protowire.BytesType {
		v := protowire.ConsumeFieldValue(number, kind, buf[n:])
		if v < 0 {
			return short()
		}
		r.use(n + v)
		return n + v, r.left == 0, nil
	}
	size, v := protowire.ConsumeVarint(buf[n:])
	if v < 0 {
		return short()
	}
	n += v
	if size > uint64(scope-n) {
		return 0, false, errCut
	}
	length := int(size)
	var text *string
	switch {
	case r.within && number == fieldResourceName:
		r.now.resources = append(r.now.resources, "")
		text = &r.now.resources[len(r.now.resources)-1]
	case r.within:
	case number == fieldResources:
		r.use(n)
		r.within, r.inner = length > 0, length
		return n, r.left == 0, nil
	case number == fieldTypeURL:
		text = &r.now.typeURL
	case number == fieldNonce:
		text = &r.now.nonce
	case number == fieldRemoved:
		r.now.removed = append(r.now.removed, "")
		text = &r.now.removed[len(r.now.removed)-1]
	}
	if text == nil {
		r.use(n)
		r.skip = length
		return n, r.left == 0, nil
	}
	if length > maxString {
		return 0, false, fmt.Errorf("a name of %d bytes", length)
	}
	if len(buf) < n+length {
		// It is read again from its tag: what was appended must go.
		switch {
		case r.within:
			r.now.resources = r.now.resources[:len(r.now.resources)-1]
		case number == fieldRemoved:
			r.now.removed = r.now.removed[:len(r.now.removed)-1]
		}
		return 0, false, nil
	}
	*text = string(buf[n : n+length])
	r.use(n + length)
	return n + length, r.left == 0, nil
}
