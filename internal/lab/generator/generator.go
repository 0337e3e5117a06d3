// Package generator owns the way to the load generator: it runs the program in a pod and reads the result that it prints.
// It does not know what is asked of it, nor what becomes of its numbers.
package generator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// Exec runs a command in the generator's pod.
type Exec func(ctx context.Context, command []string, streams api.Streams) (code int, err error)

// ErrNoResult is that of a generator which ran and printed no result: it measured nothing, most often because nobody answered.
var ErrNoResult = errors.New("the load generator printed no result")

// Run runs the generator and reads of its result what R has fields for. A generator that prints none has said why.
func Run[R any](ctx context.Context, exec Exec, command []string) (result R, err error) {
	var stdout, stderr bytes.Buffer
	code, err := exec(ctx, command, api.Streams{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return result, fmt.Errorf("run the load generator: %w", err)
	}
	if result, err = Read[R](stdout.Bytes()); err != nil {
		return result, fmt.Errorf("%w (exit code %d): %s", err, code, lastLine(stderr.String()))
	}
	return result, nil
}

// Read reads the generator's JSON.
func Read[R any](text []byte) (result R, err error) {
	var none R
	if len(bytes.TrimSpace(text)) == 0 {
		return none, ErrNoResult
	}
	var head struct {
		Format string `json:"format"`
	}
	if err := errors.Join(json.Unmarshal(text, &head), json.Unmarshal(text, &result)); err != nil {
		return none, fmt.Errorf("read the load generator's result: %w", err)
	}
	if !strings.HasPrefix(head.Format, "lateen-load/") {
		return none, fmt.Errorf("read the load generator's result: format %q is not one of lateen-load", head.Format)
	}
	return result, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
