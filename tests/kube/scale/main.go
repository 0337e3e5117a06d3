// Command scale measures lateen-control on a Kubernetes API server: it fills the server with pods and services, starts the control plane
// and node proxies that are nothing but their discovery stream, and prints what it cost at rest and how late changes arrived. It owns no
// measuring of its own (internal/lab/cpscale) and judges the three promises of docs/reference/kubernetes.md.
//
//	tests/kube/up.sh --api-only --name scale
//	go run ./tests/kube/scale -kubeconfig ~/.cache/lateen/kube/run/scale/kubeconfig
//	tests/kube/down.sh --name scale
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/lab/cpscale"
	"lateen.dev/lateen/internal/lab/procstat"
)

// Promises of docs/reference/kubernetes.md, of 10,000 pods and 1,000 services.
const (
	promisedMB     = 200
	promisedCores  = 0.05
	promisedMillis = 50
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o := cpscale.Options{Account: procstat.Host()}
	rate := flag.Float64("rate", 20, "changes per second")
	flag.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "API server to fill and to follow: one for measuring, whose objects may be anything afterwards")
	flag.StringVar(&o.Control, "control", "", "lateen-control to measure; built if it is not given")
	flag.IntVar(&o.Pods, "pods", 10_000, "pods, in the mesh")
	flag.IntVar(&o.Services, "services", 1_000, "services")
	flag.IntVar(&o.Proxies, "proxies", 20, "nodes, each with a node proxy")
	flag.Float64Var(&o.Rest, "rest", 30, "seconds at rest")
	flag.Float64Var(&o.Seconds, "seconds", 60, "seconds of changes")
	flags := flag.String("flags", "", "further flags of lateen-control")
	flag.Parse()
	o.Rates, o.ControlFlags = []float64{*rate}, strings.Fields(*flags)
	if o.Kubeconfig == "" {
		return errors.New("no API server: start one with tests/kube/up.sh --api-only and give its -kubeconfig")
	}
	if o.Control == "" {
		dir, err := os.MkdirTemp("", "lateen-scale-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary directory
		o.Control = filepath.Join(dir, "lateen-control")
		build := exec.CommandContext(ctx, "go", "build", "-o", o.Control, "lateen.dev/lateen/cmd/lateen-control")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build lateen-control: %w: %s", err, text)
		}
	}
	began := time.Now()
	o.Progress = func(what string) { fmt.Fprintf(os.Stderr, "%7.1f s  %s\n", time.Since(began).Seconds(), what) }
	facts, err := cpscale.Run(ctx, o)
	broken := 0
	for _, f := range facts {
		verdict := ""
		if limit := promise(f.Group, f.Name); limit > 0 {
			verdict = fmt.Sprintf("promised: %g", limit)
			if f.Value > limit {
				verdict += ", BROKEN"
				broken++
			}
		}
		fmt.Printf("%-16s %-60s %10.3f %-16s %s\n", f.Group, f.Name, f.Value, f.Unit, verdict)
	}
	if err == nil && broken > 0 {
		err = fmt.Errorf("%d of the promises are broken; on a machine with other work see \"other processes\" first", broken)
	}
	return err
}

// promise is the most that a fact may be; 0 where nothing is promised.
func promise(group, name string) float64 {
	switch {
	case name == "memory (RSS)":
		return promisedMB
	case group == "at rest" && name == "CPU":
		return promisedCores
	case name == "until a proxy has a change that the API server has taken, P99":
		return promisedMillis
	}
	return 0
}
