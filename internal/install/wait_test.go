package install

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestATimeThatEndsWithinALookIsToldAsBetweenTwo(t *testing.T) {
	late := errors.New("not done in time")
	for what, look := range map[string]func(context.Context) error{
		"a request is broken off": func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("get namespace: %w", ctx.Err())
		},
		"the client does not ask":     func(context.Context) error { return errors.New("rate: Wait(n=1) would exceed context deadline") },
		"there is nothing to be seen": func(context.Context) error { return nil },
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
		err := poll(ctx, func(ctx context.Context) (bool, error) { return false, look(ctx) })
		if !errors.Is(err, late) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v", what, err)
		}
		cancel()
	}
	other := errors.New("forbidden")
	if err := poll(t.Context(), func(context.Context) (bool, error) { return false, other }); !errors.Is(err, other) {
		t.Errorf("got %v", err)
	}
}
