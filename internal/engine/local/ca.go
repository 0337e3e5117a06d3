package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
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
