package xds

import (
	"fmt"
	"strconv"
	"strings"
)

// Nonce names a response: which life of the control plane sent it, up to which generation it brings the client, where it stands among
// the responses of its stream, and whether more of the same type follows. From an acknowledged nonce alone one can tell what a proxy runs.
type Nonce struct {
	Epoch      string // free of dots
	Generation uint64
	Chunk      uint64 // rises from response to response, by steps that a client cannot foresee: it has to read
	// More says that the client does not have all resources of the type yet: it is written as a "+" behind the chunk.
	More bool
}

// moreMark ends the nonce of a response that others of its type follow.
const moreMark = "+"

// String renders the nonce as it travels.
func (n Nonce) String() string {
	s := n.Epoch + "." + strconv.FormatUint(n.Generation, 10) + "." + strconv.FormatUint(n.Chunk, 10)
	if n.More {
		s += moreMark
	}
	return s
}

// ParseNonce reads a nonce that a client sent back.
func ParseNonce(s string) (Nonce, error) {
	body, more := strings.CutSuffix(s, moreMark)
	parts := strings.Split(body, ".")
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
	return Nonce{Epoch: parts[0], Generation: generation, Chunk: chunk, More: more}, nil
}
