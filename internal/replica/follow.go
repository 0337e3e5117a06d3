package replica

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	wire "lateen.dev/lateen/internal/gen/replica"
	"lateen.dev/lateen/internal/kube"
)

// other is another replica. The view's lock guards it.
type other struct {
	name, uid, address string
	ready              bool

	cancel   context.CancelFunc // nil while it is not followed
	known    known
	complete bool   // all that it knows was told
	trouble  string // why it cannot be asked
}

// stop ends following it. What was known of it is old from now on.
func (o *other) stop() {
	if o.cancel != nil {
		o.cancel()
	}
	o.cancel, o.complete, o.trouble = nil, false, ""
}

func (o *other) because() string {
	if o.trouble == "" {
		return ""
	}
	return ": " + o.trouble
}

// answerWithin is how long a replica may take for its first report.
const answerWithin = 10 * time.Second

// follow keeps up with another replica until ctx ends.
func (v *View) follow(ctx context.Context, o *other, address string) {
	backoff := kube.Backoff()
	told := ""
	for ctx.Err() == nil {
		err := v.listen(ctx, o, address, func() {
			backoff = kube.Backoff()
			if told != "" {
				v.Logger.Info("replica: another replica can be asked again", "replica", o.name, "address", address)
				told = ""
			}
		})
		if ctx.Err() != nil {
			return
		}
		why := status.Convert(err).Message()
		if errors.Is(err, io.EOF) {
			why = "it ended the call"
		}
		if why != told {
			v.Logger.Warn("replica: another replica cannot be asked what its proxies have acknowledged; objects do not count as programmed until it can", "replica", o.name, "address", address, "error", why)
			told = why
		}
		v.mu.Lock()
		if ctx.Err() == nil {
			o.complete, o.trouble = false, why
		}
		v.wakeAskers()
		v.mu.Unlock()
		v.tell(nil, true)
		if !kube.Sleep(ctx, min(backoff.Step(), longestPause)) {
			return
		}
	}
}

// longestPause is how long a replica that comes back may go unnoticed.
const longestPause = 5 * time.Second

// listen takes the reports of one call.
func (v *View) listen(ctx context.Context, o *other, address string, complete func()) error {
	conn, err := v.Dial(net.JoinHostPort(address, strconv.Itoa(v.Port)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(answerWithin, func() { cancel(errors.New("no answer within " + answerWithin.String())) })
	defer late.Stop()
	call, err := wire.NewAcknowledgementsClient(conn).Follow(ctx, &wire.FollowRequest{Replica: v.Pod})
	if err != nil {
		return because(ctx, err)
	}
	fresh := newKnown()
	for done := false; ; {
		report, err := call.Recv()
		if err != nil {
			return because(ctx, err)
		}
		if !done {
			fresh.take(report)
			if !report.GetComplete() {
				continue
			}
			late.Stop()
			done = true
			v.mu.Lock()
			if ctx.Err() == nil {
				o.known, o.complete, o.trouble = fresh, true, ""
			}
			v.wakeAskers()
			v.mu.Unlock()
			complete()
			v.tell(nil, true)
			continue
		}
		v.mu.Lock()
		if ctx.Err() != nil { // somebody else may follow it by now
			v.mu.Unlock()
			return ctx.Err()
		}
		keys, proxies := o.known.take(report)
		v.mu.Unlock()
		v.tell(keys, proxies)
	}
}

func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// wakeAskers has those look again who wait for first reports. The lock is held.
func (v *View) wakeAskers() {
	close(v.woken)
	v.woken = make(chan struct{})
}
