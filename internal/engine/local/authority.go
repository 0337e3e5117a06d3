package local

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/engine/api"
)

// authority connects the user's choice of a CA with the control plane, which signs. Its fields never change, and it needs no lock.
type authority struct {
	options CAOptions
	dir     runDir
	log     *slog.Logger
}

func newAuthority(options CAOptions, dir runDir, log *slog.Logger) *authority {
	return &authority{options: options, dir: dir, log: log}
}

// follow shows the control plane, which is not root, the files of a plugged-in CA, now and whenever they change.
func (a *authority) follow(ctx context.Context) error {
	if a.options.Dir == "" {
		return nil
	}
	to := a.dir.pluggedCA()
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("show the plugged-in CA: %w", err)
	}
	if err := os.Chown(to, controlUID, controlUID); err != nil {
		return fmt.Errorf("show the plugged-in CA: %w", err)
	}
	if err := copyCA(a.options.Dir, to); err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(lookAtCA)
		defer tick.Stop()
		told := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := copyCA(a.options.Dir, to)
			if text := fmt.Sprint(err); err != nil && text != told {
				a.log.Warn("the plugged-in CA cannot be read; what was there before stays", "err", err)
				told = text
			} else if err == nil {
				told = ""
			}
		}
	}()
	return nil
}

// rotate asks the control plane for another root.
func (a *authority) rotate() error {
	if dir := a.options.Dir; dir != "" {
		return &api.Error{Code: http.StatusConflict, Message: "the CA is plugged in from " + dir + ", and its roots are not the mesh's to change",
			Fix: "put the new root into " + filepath.Join(dir, "root-cert.pem") + " beside the old one"}
	}
	if err := ca.RequestRotation(a.dir.path("control")); err != nil {
		what, fix, _ := strings.Cut(err.Error(), "; ")
		return &api.Error{Code: http.StatusConflict, Message: what, Fix: fix}
	}
	return nil
}

// copyCA brings to the files of a plugged-in CA that differ. All are read before the first is written.
func copyCA(from, to string) error {
	all := make([][]byte, len(pluggedFiles))
	for i, name := range pluggedFiles {
		var err error
		if all[i], err = os.ReadFile(filepath.Join(from, name)); err != nil {
			return fmt.Errorf("plugged-in CA: %w", err)
		}
	}
	for i, name := range pluggedFiles {
		path := filepath.Join(to, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, all[i]) {
			continue
		}
		err := writeAtomic(path+".new", all[i], 0o600)
		if err == nil {
			err = os.Chown(path+".new", controlUID, controlUID)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			return fmt.Errorf("show the plugged-in CA: %w", err)
		}
	}
	return nil
}
