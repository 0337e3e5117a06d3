package wirecap

import (
	"bytes"
	"encoding/binary"
)

// sampleSize is how many bytes of a direction are kept to be shown.
const sampleSize = 256

// stream is one direction of a connection, put back in order. Its verdict on TLS is strict: once in step, every byte must
// belong to a well-formed record.
type stream struct {
	started bool
	next    uint32 // sequence number expected

	bytes  int
	sample []byte

	tls  tlsTrack
	http bool // a segment looked like HTTP in clear
	// blind is set while bytes may be the middle of a record that was not seen to begin: at the start of a connection
	// recorded from its middle, and after a gap.
	blind bool
	clear bool // payload was seen that cannot be TLS
}

// add takes a segment's payload. Repeated bytes are dropped; a gap puts the direction out of step. fromStart says that the
// connection was seen to open.
func (s *stream) add(seq uint32, payload []byte, fromStart bool) {
	if len(payload) == 0 {
		return
	}
	gap := false
	if s.started {
		switch ahead := int32(seq - s.next); {
		case ahead < 0:
			old := int(-int64(ahead))
			if old >= len(payload) {
				return
			}
			payload, seq = payload[old:], s.next
		case ahead > 0:
			gap = true
		}
	}
	s.next = seq + uint32(len(payload))
	first := !s.started
	s.started = true
	s.bytes += len(payload)
	if room := sampleSize - len(s.sample); room > 0 {
		s.sample = append(s.sample, payload[:min(room, len(payload))]...)
	}
	if looksHTTP(payload) {
		s.http = true
	}
	if first || gap {
		s.tls.lost()
		s.blind = gap || !fromStart
	}
	switch inStep := s.tls.add(payload); {
	case inStep:
		s.blind = false
	case !s.blind:
		s.clear = true
	}
}

// isTLS says whether all that could be judged was TLS, and some was.
func (s *stream) isTLS() bool { return s.tls.records > 0 && !s.clear && !s.tls.broken }

// tlsTrack follows the records of one direction.
type tlsTrack struct {
	inStep  bool
	broken  bool
	records int
	need    int    // payload bytes of the present record still to come
	head    []byte // part of a record's header that has come
}

// lost says that what follows need not continue what was seen.
func (t *tlsTrack) lost() { t.inStep, t.need, t.head = false, 0, nil }

const recordHeader = 5

// add takes the next bytes. It returns false if they cannot be TLS: out of step and no record starts here, or a record that
// is not well-formed. A connection recorded from its middle gets in step where a segment starts with a record.
func (t *tlsTrack) add(b []byte) bool {
	if !t.inStep {
		if len(b) < recordHeader || !validRecord(b) {
			return false
		}
		t.inStep = true
	}
	for len(b) > 0 {
		if t.need > 0 {
			n := min(t.need, len(b))
			t.need -= n
			b = b[n:]
			continue
		}
		n := min(recordHeader-len(t.head), len(b))
		t.head = append(t.head, b[:n]...)
		b = b[n:]
		if len(t.head) < recordHeader {
			return true
		}
		if !validRecord(t.head) {
			t.broken = true
			t.lost()
			return false
		}
		t.records++
		t.need = int(binary.BigEndian.Uint16(t.head[3:]))
		t.head = t.head[:0]
	}
	return true
}

// validRecord checks a record's header: RFC 8446 §5.1. Length 0 is only allowed for application data.
func validRecord(h []byte) bool {
	const changeCipherSpec, alert, handshake, applicationData = 20, 21, 22, 23
	kind, length := h[0], int(binary.BigEndian.Uint16(h[3:]))
	switch {
	case kind < changeCipherSpec || kind > applicationData:
		return false
	case h[1] != 3 || h[2] < 1 || h[2] > 3:
		return false
	case length > 1<<14+256 || length == 0 && kind != applicationData:
		return false
	}
	return true
}

var httpStarts = [][]byte{
	[]byte("GET /"), []byte("POST /"), []byte("PUT /"), []byte("HEAD /"), []byte("DELETE /"), []byte("OPTIONS "), []byte("PATCH /"),
	[]byte("CONNECT "), []byte("HTTP/1."), []byte("PRI * HTTP/2.0"),
}

func looksHTTP(b []byte) bool {
	for _, s := range httpStarts {
		if bytes.HasPrefix(b, s) {
			return true
		}
	}
	return false
}
