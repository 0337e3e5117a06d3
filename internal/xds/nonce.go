package xds

import (
	"fmt"
	"strconv"
	"strings"
)

// Nonce names a response: which life of the control plane sent it, up to which generation it brings the client, and the how manieth
// response of the stream it is. From an acknowledged nonce alone one can tell what a proxy runs.
type Nonce struct {
	Epoch      string // free of dots
	Generation uint64
	Chunk      uint64
}

// String renders the nonce as it travels.
func (n Nonce) String() string {
	return n.Epoch + "." + strconv.FormatUint(n.Generation, 10) + "." + strconv.FormatUint(n.Chunk, 10)
}

// ParseNonce reads a nonce that a client sent back.
func ParseNonce(s string) (Nonce, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || parts[0] == "" {
		return Nonce{}, fmt.Errorf("nonce %q is not epoch.generation.chunk", s)
	}
	generation, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return Nonce{}, fmt.Errorf("nonce %q: generation: %w", s, err)
	}
	chunk, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Nonce{}, fmt.Errorf("nonce %q: chunk: %w", s, err)
	}
	return Nonce{Epoch: parts[0], Generation: generation, Chunk: chunk}, nil
}
