package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/install"
)

func probeInstallation(_ context.Context, t *Target) (string, *Finding) {
	switch r := t.Record; {
	case t.Unfound != nil:
		return "", unable(t.Unfound)
	case r == nil:
		return "", finding("lateen install", "Lateen is not installed on this cluster")
	case r.LostError() != nil:
		return "", unable(r.LostError())
	case r.State == "uninstalling" && r.Bare:
		return "", finding("end that with lateen uninstall", "the removal of Lateen %s from namespace %s was begun and not ended", r.Version, r.Namespace)
	case r.State == "uninstalling":
		return "", finding("end that with lateen uninstall, or take it back with lateen upgrade", "the removal of Lateen %s from namespace %s was begun and not ended", r.Version, r.Namespace)
	case r.State != "installed":
		return "", finding("go on with lateen upgrade, or remove it with lateen uninstall", "Lateen %s in namespace %s is only half there (%s)", r.Version, r.Namespace, r.State)
	case install.Newer(r.Version, t.Version):
		return "", mild(fmt.Sprintf("use the lateen of %s or later with this mesh", r.Version), "Lateen %s is installed; this program has %s, which is older", r.Version, t.Version)
	case r.Version != t.Version:
		return "", mild("lateen upgrade --dry-run shows what this program's version would change", "Lateen %s is installed; this program has %s, which is newer", r.Version, t.Version)
	default:
		return fmt.Sprintf("Lateen %s in namespace %s", r.Version, r.Namespace), nil
	}
}

func workload(kind, name string) func(context.Context, *Target) (string, *Finding) {
	return func(ctx context.Context, t *Target) (string, *Finding) {
		if t.Record == nil {
			return "", t.absent()
		}
		state, err := t.Cluster.State(ctx, kind, t.Record.Namespace, name)
		if err != nil {
			return "", unable(err)
		}
		return state, nil
	}
}

// look asks the parts once.
func (t *Target) look(ctx context.Context) (*api.Status, *Finding) {
	if t.Record == nil {
		return nil, t.absent()
	}
	if t.status == nil {
		s, err := t.Pages.Status(ctx)
		if err != nil {
			return nil, unable(err)
		}
		t.status = &s
	}
	return t.status, nil
}

func probeProxies(ctx context.Context, t *Target) (string, *Finding) {
	s, problem := t.look(ctx)
	if problem != nil {
		return "", problem
	}
	if s.Control.Error != "" {
		return "", finding("see LAT121, and kubectl logs -n "+t.Record.Namespace+" -l app=lateen-control", "a replica of the control plane cannot be asked: %s", s.Control.Error)
	}
	connected := map[string]bool{}
	for _, c := range s.Control.Clients {
		connected[c.Node] = true
	}
	var away, behind []string
	wanted, count := t.placed("node"), 0
	for _, n := range s.Nodes {
		if !slices.ContainsFunc(wanted, func(w corev1.Node) bool { return w.Name == n.Name }) {
			continue // its proxies are kept from there
		}
		count++
		switch {
		case !connected[n.Name]:
			away = append(away, n.Name)
		case n.Proxy.AckedGeneration < s.Control.Generation:
			behind = append(behind, fmt.Sprintf("%s (%d of %d)", n.Name, n.Proxy.AckedGeneration, s.Control.Generation))
		}
	}
	if len(away) > 0 {
		return "", finding("see why with lateen logs proxy/"+away[0]+", and whether a NetworkPolicy keeps it from port 15012 of lateen-control", "no connection to the control plane from the proxy of %s", some(away))
	}
	if len(behind) > 0 {
		return "", mild("look again in a moment; a proxy that stays behind says why in lateen logs proxy/NODE", "not current yet: %s", some(behind))
	}
	return fmt.Sprintf("%d, at generation %d", count, s.Control.Generation), nil
}

// soon is how long before its end a CA is spoken of.
const soon = 30 * 24 * time.Hour

func probeAuthority(ctx context.Context, t *Target) (string, *Finding) {
	s, problem := t.look(ctx)
	if problem != nil {
		return "", problem
	}
	ca := s.Control.CA
	switch {
	case ca == nil:
		return "", finding("see LAT121", "the control plane does not say how it stands with its CA")
	case ca.Trouble != "":
		return "", finding("lateen ca status says more", "%s", ca.Trouble)
	case !ca.Expires.IsZero() && ca.Expires.Before(t.Now()):
		return "", finding("plug in a new CA, or replace the root with lateen ca rotate", "%s expired at %s", ca.Signing, ca.Expires.Format(time.DateTime))
	case !ca.Expires.IsZero() && ca.Expires.Before(t.Now().Add(soon)):
		return "", mild("plug in a new CA, or replace the root with lateen ca rotate", "%s expires at %s", ca.Signing, ca.Expires.Format(time.DateTime))
	}
	return fmt.Sprintf("%s, until %s", ca.Signing, ca.Expires.Format(time.DateOnly)), nil
}

func probeRoots(ctx context.Context, t *Target) (string, *Finding) {
	maps, err := t.Cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=istio-ca-root-cert"})
	if err != nil {
		return "", unable(err)
	}
	namespaces, err := t.Cluster.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", unable(err)
	}
	has := map[string]bool{}
	for _, m := range maps.Items {
		has[m.Namespace] = m.Data["root-cert.pem"] != ""
	}
	var without []string
	for _, n := range namespaces.Items {
		if !has[n.Name] && n.DeletionTimestamp == nil {
			without = append(without, n.Name)
		}
	}
	if len(without) > 0 {
		return "", finding("see what the leader of the control plane says: kubectl logs -n "+t.Options.Namespace+" -l app=lateen-control", "no root certificate (ConfigMap istio-ca-root-cert) in %s", some(without))
	}
	for _, m := range maps.Items {
		if m.Namespace == t.Options.Namespace {
			if problem := t.trusted(ctx, m.Data["root-cert.pem"]); problem != nil {
				return "", problem
			}
		}
	}
	return fmt.Sprintf("in all %d", len(namespaces.Items)), nil
}

// trusted compares what node proxies read with what the control plane has: theirs are the first connections to it.
func (t *Target) trusted(ctx context.Context, bundle string) *Finding {
	s, problem := t.look(ctx)
	if problem != nil || s.Control.CA == nil {
		return nil // LAT121 or LAT125 says so
	}
	type root struct{ subject, expires string }
	has := map[root]bool{}
	for rest := []byte(bundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			has[root{c.Subject.String(), c.NotAfter.UTC().Format(time.RFC3339)}] = true
		}
	}
	for _, want := range s.Control.CA.Trusted {
		if !has[root{want.Subject, want.Expires.UTC().Format(time.RFC3339)}] {
			return finding(fmt.Sprintf("if it belongs to a mesh that is gone, kubectl delete configmap -n %s istio-ca-root-cert, and the control plane makes it anew; else see what its leader says with lateen logs control", t.Options.Namespace),
				"ConfigMap %s/istio-ca-root-cert does not hold %s, which the control plane's own certificate comes from: node proxies do not trust it", t.Options.Namespace, want.Subject)
		}
	}
	return nil
}

// apart is how far clocks may be from each other: certificates begin to be valid a minute before they are made.
const apart = 30 * time.Second

func probeClocks(ctx context.Context, t *Target) (string, *Finding) {
	if t.Record == nil {
		return "", t.absent()
	}
	clocks, err := t.Pages.Clocks(ctx)
	if err != nil {
		return "", unable(err)
	}
	if len(clocks) == 0 {
		return "", finding("see LAT121 to LAT124 for why they cannot be asked, then look again", "not known: no part of the mesh could be asked what time it has")
	}
	var wrong []string
	first, last := time.Time{}, time.Time{}
	for name, at := range clocks {
		d := at.Sub(t.Now())
		if d.Abs() > apart {
			wrong = append(wrong, fmt.Sprintf("%s by %s", name, d.Round(time.Second)))
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if len(wrong) > 0 && last.Sub(first) <= apart {
		return "", mild("set this machine's clock", "this machine's clock is %s from the cluster's", t.Now().Sub(first).Round(time.Second))
	}
	if len(wrong) > 0 {
		return "", finding("set the nodes' clocks (NTP); certificates are refused as not yet or no longer valid", "off: %s", some(wrong))
	}
	return fmt.Sprintf("%d within %s", len(clocks), apart), nil
}

// patience is how long a pod may wait to be captured before it is spoken of.
const patience = 30 * time.Second

func probePods(ctx context.Context, t *Target) (string, *Finding) {
	s, problem := t.look(ctx)
	if problem != nil {
		return "", problem
	}
	var missing, leaving []string
	captured := 0
	for _, p := range s.Pods {
		switch {
		case p.Mesh == "captured":
			captured++
		case p.Enrolled && p.Node != "" && p.IP != "":
			missing = append(missing, fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, p.Node))
		case p.Redirection:
			leaving = append(leaving, fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, p.Node))
		}
	}
	if len(missing) > 0 {
		node := missing[0][strings.LastIndex(missing[0], " ")+1:]
		return "", finding("see why with lateen logs agent/"+node, "not captured, though their labels ask for it: %s", some(missing))
	}
	if len(leaving) > 0 {
		return "", mild("they are released when their connections have ended; see lateen logs agent/NODE", "still captured, though their labels do not ask for it: %s", some(leaving))
	}
	return fmt.Sprintf("%d", captured), nil
}
