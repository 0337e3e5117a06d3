package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func TestWhatIsBrokenOffSaysHowToGoOn(t *testing.T) {
	o := Options{Timeout: 50 * time.Millisecond}
	work := func(ctx context.Context) error {
		o.started("x", "defining the mesh's kinds")
		<-ctx.Done()
		return ctx.Err()
	}
	e := said(t, within(t.Context(), &o, work))
	if e.Code != 408 || !strings.Contains(e.Message, "--timeout gives, 50ms,") || !strings.Contains(e.Message, "defining the mesh's kinds") || !strings.Contains(e.Fix, "repeated") {
		t.Error(e)
	}
	o.Timeout = time.Minute
	// As the client of the API server says it that would have to wait for its turn.
	e = said(t, within(t.Context(), &o, func(context.Context) error {
		return errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	}))
	if e.Code != 408 || strings.Contains(e.Message, "limiter") {
		t.Error(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var i *Interrupted
	if err := within(ctx, &o, work); !errors.As(err, &i) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "defining the mesh's kinds") || !strings.Contains(err.Error(), "repeated") {
		t.Error(err)
	}
	own := &api.Error{Code: 409, Message: "m", Fix: "c"}
	if err := within(ctx, &o, func(context.Context) error { return own }); !errors.Is(err, own) {
		t.Error(err)
	}
}
