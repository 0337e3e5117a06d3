package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// Within does what a command needs to know before it begins, in the time that the command has.
func Within(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	o := Options{Timeout: timeout}
	return within(ctx, &o, ask)
}

// within does work in the time that is given for it, and says of a work that was broken off what it was at, and how to go on.
func within(ctx context.Context, o *Options, work func(context.Context) error) error {
	at, progress := "", o.Progress
	o.Progress = func(e api.Event) {
		if e.State == api.EventStarted {
			at = e.Message
		}
		if progress != nil {
			progress(e)
		}
	}
	defer func() { o.Progress = progress }()
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not done after %s", o.Timeout))
		defer cancel()
	}
	err := work(ctx)
	var said *api.Error
	switch {
	case err == nil, errors.As(err, &said):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return &Interrupted{At: at}
	case ctx.Err() == nil && !hurried(err):
		return err
	}
	late := &api.Error{Code: 408, Message: err.Error(), Fix: "give it more time with --timeout; the command can be repeated and goes on where it ended"}
	if errors.Is(err, context.DeadlineExceeded) || hurried(err) {
		late.Message = fmt.Sprintf("the time that --timeout gives, %s, was over %s", o.Timeout, during(at))
	}
	return late
}

// hurried says whether a client did not ask at all because its turn would have come too late. It says so in words alone.
func hurried(err error) bool { return strings.Contains(err.Error(), "would exceed context deadline") }

func during(at string) string {
	if at == "" {
		return "at its beginning"
	}
	return fmt.Sprintf("while this was being done: %s", at)
}

// Interrupted is a command that somebody has ended.
type Interrupted struct {
	// At is what it was doing; empty if it had not begun.
	At string
}

// Error implements error.
func (i *Interrupted) Error() string {
	return fmt.Sprintf("interrupted %s; the command can be repeated and goes on where it ended", during(i.At))
}

// Unwrap makes it an interruption to whoever asks for the kind.
func (i *Interrupted) Unwrap() error { return context.Canceled }
