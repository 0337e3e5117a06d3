// Package cluster owns the checks of a Kubernetes cluster: whether it can have a mesh, and whether the mesh that it has is well. Its findings
// are package check's, with codes from LAT100 on; it changes nothing in the cluster.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

// The purposes of these checks, in a report.
const (
	// Before is putting a mesh onto the cluster.
	Before check.Purpose = "pre"
	// Installed is the mesh of the cluster being well.
	Installed check.Purpose = "cluster"
)

// Pages are what the parts of the mesh say; package engine/kube has them.
type Pages interface {
	Status(ctx context.Context) (api.Status, error)
	// Clocks are what the time is at each part that answers, by its name.
	Clocks(ctx context.Context) (map[string]time.Time, error)
}

// Target is what is looked at.
type Target struct {
	Cluster *install.Cluster
	Options install.Options
	// Record is what is installed; nil if nothing is.
	Record *install.Record
	// Unfound is why it is not known what is installed.
	Unfound error
	// Version is this program's charts'.
	Version string
	Pages   Pages
	Now     func() time.Time

	nodes []corev1.Node
	// unseen is why the nodes are not known.
	unseen error
	status *api.Status
}

// Check is one entry of the catalogue.
type Check struct {
	Code, Title string
	// Weight is the outcome of a finding, by purpose; a finding may say that it weighs less.
	Weight map[check.Purpose]check.Outcome
	Probe  func(ctx context.Context, t *Target) (found string, problem *Finding)
}

// Finding is why a probe is not satisfied.
type Finding struct {
	check.Problem
	// Mild makes a failure a warning.
	Mild bool
}

func finding(fix, format string, args ...any) *Finding {
	return &Finding{Problem: check.Problem{Cause: fmt.Sprintf(format, args...), Fix: fix}}
}

func mild(fix, format string, args ...any) *Finding {
	f := finding(fix, format, args...)
	f.Mild = true
	return f
}

// unable is a finding of what could not be looked at.
func unable(err error) *Finding {
	var said *api.Error
	if errors.As(err, &said) {
		return finding(said.Fix, "%s", said.Message)
	}
	if apierrors.IsForbidden(err) {
		return finding("use credentials of a cluster administrator, or have one grant the right that is named", "it cannot be looked at: %v", err)
	}
	return finding("see LAT100", "it cannot be looked at: %v", err)
}

// absent is a finding about a mesh that is not there, or of which that is not known.
func (t *Target) absent() *Finding {
	if t.Unfound != nil {
		return finding("see LAT120", "not known: whether it is installed could not be asked")
	}
	return finding("see LAT120", "it is not installed")
}

// Catalogue lists every check of a cluster. A code is never reused for another meaning: users search for it.
func Catalogue() []Check {
	both := map[check.Purpose]check.Outcome{Before: check.Failure, Installed: check.Failure}
	before := map[check.Purpose]check.Outcome{Before: check.Failure}
	after := map[check.Purpose]check.Outcome{Installed: check.Failure}
	return []Check{
		{"LAT100", "API server", both, probeReach},
		{"LAT101", "version of Kubernetes", both, probeVersion},
		{"LAT102", "rights of these credentials", before, probeRights},
		{"LAT103", "definitions of the mesh's kinds", both, probeDefinitions},
		{"LAT104", "other control planes", both, probeConflicts},
		{"LAT105", "nodes' system, processor and kernel", both, probeNodes},
		{"LAT106", "nodes ready", map[check.Purpose]check.Outcome{Before: check.Warning, Installed: check.Warning}, probeReady},
		{"LAT107", "folders of the container network", both, probeFolders},
		{"LAT108", "services' addresses (kube-proxy)", both, probeKubeProxy},
		{"LAT109", "install namespace and its Pod Security", both, probePodSecurity},
		{"LAT120", "installation", after, probeInstallation},
		{"LAT121", "control plane", after, workload("Deployment", "lateen-control")},
		{"LAT122", "agents on all nodes", after, workload("DaemonSet", "lateen-agent")},
		{"LAT123", "node proxies on all nodes", after, workload("DaemonSet", "lateen-node")},
		{"LAT124", "proxies connected and current", after, probeProxies},
		{"LAT125", "certificate authority", after, probeAuthority},
		{"LAT126", "root certificates in namespaces", after, probeRoots},
		{"LAT127", "clocks", after, probeClocks},
		{"LAT128", "pods captured as their labels ask", after, probePods},
		{"LAT129", "objects in force", map[check.Purpose]check.Outcome{Installed: check.Warning}, probeObjects},
		{"LAT130", "kinds without effect", map[check.Purpose]check.Outcome{Installed: check.Warning}, probeUnread},
		{"LAT131", "parts as they were installed", after, probeDrift},
		{"LAT132", "accelerator", map[check.Purpose]check.Outcome{Before: check.Warning, Installed: check.Warning}, probeAccelerator},
	}
}

// Run applies every check of a purpose, in the catalogue's order. Without an API server the others are left out: they would all say the same.
func Run(ctx context.Context, t *Target, purpose check.Purpose) check.Report {
	report := check.Report{Purpose: purpose, Results: []check.Result{}}
	for _, c := range Catalogue() {
		weight, wanted := c.Weight[purpose]
		if !wanted {
			continue
		}
		found, problem := c.Probe(ctx, t)
		result := check.Result{Code: c.Code, Title: c.Title, Outcome: check.OK, Found: found}
		if problem != nil {
			result.Outcome, result.Cause, result.Fix = weight, problem.Cause, problem.Fix
			if problem.Mild {
				result.Outcome = check.Warning
			}
		}
		report.Results = append(report.Results, result)
		if c.Code == "LAT100" && problem != nil {
			break
		}
	}
	return report
}
