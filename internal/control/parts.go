package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/compile"
	"lateen.dev/lateen/internal/control/cluster"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/status"
)

// parts are what a control plane is made of that differs from place to place: on files (the local engine) or on Kubernetes.
type parts struct {
	source      source
	authority   authority
	verifier    verifier
	assignments *compile.Assignments
	// compiled, if not nil, is told of the compiler that uses the assignments.
	compiled func(*compile.Compiler)
	// kept are the assignments where they must be read before anything is compiled; nil where they were read already.
	kept kept
	// damage is what of the state that was kept could not be used at the start; it is told until the next.
	damage []files.Problem
	// tasks run beside the rest until their context ends.
	tasks []func(context.Context)
	// place is where the CA's state is kept, for people.
	place string
	// replicas is what several replicas on Kubernetes need to act as one; nil where there is one.
	replicas *replicas
}

// source is where the mesh's objects come from.
type source interface {
	// Run hands on everything at once, when there is everything, and then every change.
	Run(ctx context.Context, apply func([]model.Change)) error
	// Problems lists what is wrong now with what is read.
	Problems() []files.Problem
}

// kept is what was chosen before this start.
type kept interface {
	// Load returns when it was read, or with an error when ctx ends.
	Load(ctx context.Context) error
	// Ready says why it could not be read yet, and nil once it was.
	Ready() error
}

// waiting is a source that can say what it waits for before it hands on anything, and what should be known of it after.
type waiting interface {
	Ready() error
	Note() string
}

// verifier proves whose a token is, by something that may change while it runs.
type verifier interface {
	ca.Verifier
	Run(context.Context, *slog.Logger)
}

// assemble makes the parts for the place that the options name.
func assemble(opts Options, store *model.Store, metrics *status.Metrics, now func() time.Time, logger *slog.Logger) (parts, error) {
	if opts.Kube {
		return onKubernetes(opts, store, metrics, now, logger)
	}
	return onFiles(opts, store, now, logger)
}

// onFiles is a control plane that reads a directory and keeps its state in another.
func onFiles(opts Options, store *model.Store, now func() time.Time, logger *slog.Logger) (parts, error) {
	authority, err := openAuthority(opts, store, now, logger)
	if err != nil {
		return parts{}, err
	}
	verifier, err := ca.LoadTokenVerifier(opts.TokenKey, opts.TokenIssuer, now)
	if err != nil {
		return parts{}, err
	}
	p := parts{source: files.NewSource(opts.ConfigDir, logger), authority: authority, verifier: verifier, place: opts.DataDir}
	if opts.Authority.CADir != "" {
		p.place = opts.Authority.CADir
	}
	var damage error
	p.assignments, damage = compile.LoadAssignments(filepath.Join(opts.DataDir, assignmentsFile), now())
	if damage != nil {
		logger.Error("control: damaged state", "error", damage)
		p.damage = append(p.damage, files.Problem{File: filepath.Join(opts.DataDir, assignmentsFile), Severity: files.Warning, Message: damage.Error()})
	}
	return p, nil
}

// place checks that the options say where the control plane runs, and not twice.
func (o Options) place() error {
	if !o.Kube {
		for _, f := range []struct{ name, value string }{{"config-dir", o.ConfigDir}, {"data-dir", o.DataDir}, {"token-key", o.TokenKey}} {
			if f.value == "" {
				return fmt.Errorf("--%s is missing; a control plane takes --config-dir, --data-dir and --token-key, or --kube", f.name)
			}
		}
		if o.Authority.TakeOver != "" || o.Authority.CASigner != "" || o.Authority.CASignerApprove {
			return errors.New("--take-over and --ca-signer go with --kube; add it")
		}
		if o.Kubeconfig != "" || o.KubeContext != "" {
			return fmt.Errorf("--kubeconfig and --kube-context go with --kube; add it")
		}
		return nil
	}
	switch {
	case o.DataDir != "" || o.TokenKey != "" || o.Authority.CADir != "":
		return errors.New("--data-dir, --token-key and --ca-dir do not go with --kube, where all that is in the cluster; remove them (a plugged-in CA is the Secret " + cluster.PluggedSecret + ")")
	case o.Authority.TakeOver != "" && o.Authority.TakeOver != "istio":
		return fmt.Errorf("--take-over is %q; use istio", o.Authority.TakeOver)
	case o.Authority.CASigner == "" && o.Authority.CASignerApprove:
		return errors.New("--ca-signer-approve goes with --ca-signer; add it")
	}
	if o.ConfigDir != "" {
		return fmt.Errorf("both --kube and --config-dir are given; objects come from one of the two: remove the other")
	}
	return nil
}
