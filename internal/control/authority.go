package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/model"
)

// authority is the CA in one of its two forms.
type authority interface {
	ca.Authority
	Run(context.Context)
	Status() ca.Status
}

// openAuthority opens the CA that the options name: one that is plugged in, or one of our own. It writes the public roots out,
// now and whenever they change.
func openAuthority(opts Options, pods ca.Pods, now func() time.Time, logger *slog.Logger) (authority, error) {
	var failed error
	publish := func(s *ca.Signer) {
		if opts.RootCertOut == "" {
			return
		}
		if failed = ca.WriteFile(opts.RootCertOut, s.Bundle(), 0o644); failed != nil {
			logger.Warn("control: the root certificates were not published", "error", failed)
		}
	}
	a, err := loadAuthority(opts, pods, now, logger, publish)
	if err != nil {
		return nil, err
	}
	return a, failed
}

func loadAuthority(opts Options, pods ca.Pods, now func() time.Time, logger *slog.Logger, publish func(*ca.Signer)) (authority, error) {
	if opts.Authority.CADir != "" {
		p, err := ca.LoadPlugged(opts.Authority.CADir, now, logger, publish)
		if err != nil {
			return nil, err // not a nil *Plugged in an interface
		}
		return p, nil
	}
	r, err := ca.LoadRotating(opts.DataDir, opts.Mesh.TrustDomain, opts.CertTTL, now, logger, publish)
	if err != nil {
		return nil, err
	}
	r.LeastStage = opts.Authority.RotationLeastStage
	r.InUse = func(h ca.Holder) bool { return ca.InUse(pods, h, now()) }
	return r, nil
}

// registerAuthority exports how it stands with the CA.
func registerAuthority(registry *prometheus.Registry, a authority) {
	gauge := func(name, help string, value func(ca.Status) float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(a.Status()) }))
	}
	gauge("lateen_control_ca_expiry_timestamp_seconds", "Unix time when the first certificate between the CA's key and the root expires, the root included.",
		func(s ca.Status) float64 { return float64(s.Expires.Unix()) })
	gauge("lateen_control_ca_roots", "Root certificates that proxies are told to trust; more than one while roots are changed.",
		func(s ca.Status) float64 { return float64(len(s.Trusted)) })
	gauge("lateen_control_ca_behind", "Certificates in use that were issued before the present stage of root rotation.",
		func(s ca.Status) float64 { return float64(s.Behind) })
	gauge("lateen_control_ca_trouble", "1 if the CA has ended and issues nothing, if its root has ended, or if what is on disk for it cannot be used and what was there before is in force.",
		func(s ca.Status) float64 {
			if s.Trouble != "" {
				return 1
			}
			return 0
		})
}

// debugPages adds the CA's page to the others.
func debugPages(others http.Handler, a authority) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", others)
	mux.HandleFunc("GET /debug/ca", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(a.Status()) // the reader has left
	})
	return mux
}

// rotateRoot is the command that asks a running control plane for a new root.
func rotateRoot() *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "rotate-root --data-dir DIR",
		Short: "Have the control plane that keeps its CA in DIR replace the mesh's root certificate, in stages that nobody notices",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ca.RequestRotation(dir); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "rotation requested; /debug/ca of the control plane tells how far it is")
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "directory that the control plane got as --data-dir")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

var _ ca.Pods = (*model.Store)(nil)
