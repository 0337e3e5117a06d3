package local

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/engine/api"
)

// CAOptions are what a user chooses about the mesh's certificates.
type CAOptions struct {
	Dir     string        `json:"dir"`     // absolute path of a plugged-in CA's directory; the control plane makes a root if empty
	TTL     time.Duration `json:"ttl"`     // how long workload certificates live; 0 leaves it to the control plane
	Aliases []string      `json:"aliases"` // of the trust domain
}

// pluggedFiles are those of a plugged-in CA.
var pluggedFiles = []string{"ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"}

const (
	// leastStage is the most that a stage of root rotation is made to last when nothing is renewed.
	leastStage = 2 * time.Minute
	// lookAtCA is how often the user's directory is looked at.
	lookAtCA = time.Second
)

func (o *CAOptions) complete() error {
	if o.Dir == "" {
		return nil
	}
	for _, name := range pluggedFiles {
		if _, err := os.Stat(filepath.Join(o.Dir, name)); err != nil {
			return fmt.Errorf("plugged-in CA: %w; the directory must hold %s", err, strings.Join(pluggedFiles, ", "))
		}
	}
	return nil
}

// flags are the control plane's; dir is where it finds a plugged-in CA.
func (o *CAOptions) flags(dir runDir) []string {
	var flags []string
	if o.Dir != "" {
		flags = append(flags, "--ca-dir", dir.pluggedCA())
	}
	if ttl := o.TTL; ttl != 0 {
		// Proxies find the roots in a file of this very machine: certificates that live seconds need not wait minutes.
		flags = append(flags, "--cert-ttl", ttl.String(), "--root-rotation-least-stage", min(leastStage, max(ttl, time.Second)).String())
	}
	if len(o.Aliases) > 0 {
		flags = append(flags, "--trust-domain-aliases", strings.Join(o.Aliases, ","))
	}
	return flags
}

// env is the node proxies' environment.
func (o *CAOptions) env() []string {
	var env []string
	if ttl := o.TTL; ttl != 0 {
		env = append(env, fmt.Sprintf("SECRET_TTL=%dms", ttl.Milliseconds()))
	}
	if len(o.Aliases) > 0 {
		env = append(env, "TRUST_DOMAIN_ALIASES="+strings.Join(o.Aliases, ","))
	}
	return env
}

// followCA shows the control plane, which is not root, the files of a plugged-in CA, now and whenever they change.
func (e *Engine) followCA(ctx context.Context) error {
	if e.opts.CA.Dir == "" {
		return nil
	}
	to := e.dir.pluggedCA()
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("show the plugged-in CA: %w", err)
	}
	if err := os.Chown(to, controlUID, controlUID); err != nil {
		return fmt.Errorf("show the plugged-in CA: %w", err)
	}
	if err := copyCA(e.opts.CA.Dir, to); err != nil {
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
			err := copyCA(e.opts.CA.Dir, to)
			if text := fmt.Sprint(err); err != nil && text != told {
				e.log.Warn("the plugged-in CA cannot be read; what was there before stays", "err", err)
				told = text
			} else if err == nil {
				told = ""
			}
		}
	}()
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

// rotateCA asks the control plane for another root.
func (e *Engine) rotateCA() error {
	if dir := e.opts.CA.Dir; dir != "" {
		return &api.Error{Code: http.StatusConflict, Message: "the CA is plugged in from " + dir + ", and its roots are not the mesh's to change",
			Cure: "put the new root into " + filepath.Join(dir, "root-cert.pem") + " beside the old one"}
	}
	if err := ca.RequestRotation(e.dir.path("control")); err != nil {
		what, cure, _ := strings.Cut(err.Error(), "; ")
		return &api.Error{Code: http.StatusConflict, Message: what, Cure: cure}
	}
	return nil
}
