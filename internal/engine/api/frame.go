package api

import (
	"encoding/binary"
	"fmt"
	"io"
)

// FrameType says what a frame of an exec stream carries.
type FrameType byte

// The frames of an exec stream. The client sends FrameStdin, FrameStdinEOF and FrameResize; the engine the others.
const (
	FrameStdin FrameType = iota
	FrameStdinEOF
	FrameStdout
	FrameStderr
	FrameResize // JSON Size
	FrameExit   // JSON Exit; the last frame
)

// MaxFrame bounds the payload of one frame in bytes.
const MaxFrame = 64 << 10

// Exit is how a command ended.
type Exit struct {
	Code  int    `json:"code"`
	Error string `json:"error,omitempty"` // it could not be run at all
}

// WriteFrame writes one frame: type, length (4 bytes, big endian), payload. It fails on a payload over MaxFrame.
func WriteFrame(w io.Writer, t FrameType, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("write frame: payload of %d bytes is over %d", len(payload), MaxFrame)
	}
	b := make([]byte, 5+len(payload))
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:5], uint32(len(payload)))
	copy(b[5:], payload)
	_, err := w.Write(b)
	return err
}

// ReadFrame reads one frame. io.EOF means that the stream ended between frames.
func ReadFrame(r io.Reader) (FrameType, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	t, n := FrameType(head[0]), binary.BigEndian.Uint32(head[1:])
	if t > FrameExit {
		return 0, nil, fmt.Errorf("read frame: unknown type %d", head[0])
	}
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("read frame: payload of %d bytes is over %d", n, MaxFrame)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return t, payload, nil
}
