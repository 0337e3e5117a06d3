package local

import (
	"encoding/json"
	"io"
	"os"

	"lateen.dev/lateen/internal/engine/api"
)

// eventWriter writes progress to whoever waits for the mesh; nobody may be there any more.
type eventWriter struct {
	enc *json.Encoder
	w   io.Closer
}

func newEventWriter(f *os.File) *eventWriter { return &eventWriter{enc: json.NewEncoder(f), w: f} }

func (w *eventWriter) send(e api.Event) { _ = w.enc.Encode(e) }
func (w *eventWriter) started(phase, msg string) {
	w.send(api.Event{Phase: phase, State: api.EventStarted, Message: msg})
}
func (w *eventWriter) done(phase, msg string) {
	w.send(api.Event{Phase: phase, State: api.EventDone, Message: msg})
}
func (w *eventWriter) failed(phase string, err error, fix string, log []string) {
	w.send(api.Event{Phase: phase, State: api.EventFailed, Message: err.Error(), Error: err.Error(), Fix: fix, Log: log})
}
func (w *eventWriter) close() { w.w.Close() }

// failure is why a mesh did not come up.
type failure struct {
	phase string
	err   error
	fix   string
	log   []string // the last lines of the log concerned
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
