package install

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// look is the time between two looks at the node that nothing asked for.
	look = 10 * time.Second
	// settle is how long a folder that changes is let alone: whoever writes there may not be ready.
	settle = 50 * time.Millisecond
)

// Keep keeps the plugin in place until ctx ends: network configurations come, go and are written anew by those whose
// network it is. installed is told after every look.
func (n Node) Keep(ctx context.Context, log *slog.Logger, installed func(err error, changed bool)) {
	n.copied = &twins{}
	var events chan fsnotify.Event
	const late = "changes of the node's network configuration are noticed late"
	if w, err := fsnotify.NewWatcher(); err != nil {
		// The kernel counts watchers by user, and containers that run as root have root's.
		log.Warn(late, "err", err, "every", look)
	} else {
		defer w.Close()
		// It does not go on while an error waits to be read. What was missed is seen at the next look.
		go func() {
			for range w.Errors {
			}
		}()
		err = errors.Join(w.Add(n.ConfDir), w.Add(n.BinDir))
		if err != nil {
			log.Warn(late, "err", err, "every", look)
		}
		events = w.Events
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	said := ""
	for first := true; ; first = false {
		where, changed, err := n.Install()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			log.Warn("the CNI plugin is not installed; pods of the mesh are captured only after they have started", "err", err)
			said = err.Error()
		case err == nil && (first || said != ""):
			log.Info("the CNI plugin is installed", "file", filepath.Join(n.ConfDir, where))
			said = ""
		case err == nil && changed:
			log.Warn("repaired the installation of the CNI plugin: somebody else changed it", "file", filepath.Join(n.ConfDir, where))
		}
		installed(err, changed && !first)
		select {
		case <-tick.C:
		case <-events:
			pause := time.NewTimer(settle)
			for waiting := true; waiting; {
				select {
				case <-events:
				case <-pause.C:
					waiting = false
				}
			}
		case <-ctx.Done():
			return
		}
	}
}
