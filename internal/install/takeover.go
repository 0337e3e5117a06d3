package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/engine/api"
)

// Move is one step of taking over another mesh.
type Move struct {
	// What it does, for people.
	What string
	// phase is after which part of the installation it is done. A part does by itself what has no function.
	phase string
	do    func(context.Context) error
	// ends is what of Istio's is no conflict any more once it is done.
	ends thing
}

// moveAll makes the moves that come after a part of the installation.
func (i *Installation) moveAll(ctx context.Context, phase string) error {
	for _, m := range i.moves {
		if m.phase != phase || m.do == nil {
			continue
		}
		if err := i.move(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (i *Installation) move(ctx context.Context, m Move) error {
	i.options.started("take-over", "%s", m.What)
	if err := m.do(ctx); err != nil {
		return fmt.Errorf("take over from Istio: %s: %w; Istio's other parts are as they were, and the command can be repeated", m.What, err)
	}
	i.options.done("take-over", "%s", m.What)
	return nil
}

// istio is what there is of a running Istio.
type istio struct {
	namespace         string
	control           []appsv1.Deployment
	ztunnels, cnis    []*appsv1.DaemonSet
	authority         *corev1.Secret
	mutating, judging []string
}

// survey finds the parts of Istio that matter when its place is taken. Istio's namespace is that of mesh-wide policies: this mesh's control
// plane looks for the CA there alone. Its DaemonSets can have namespaces of their own; what only bears their names elsewhere may be anybody's.
func (c *Cluster) survey(ctx context.Context, o Options) (*istio, error) {
	s := &istio{namespace: rootNamespace(o.Values)}
	conflicts, err := c.Conflicts(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, f := range conflicts {
		if f.isIstio() && strings.HasPrefix(f.What, deploymentPrefix) && f.Where != s.namespace {
			return nil, &api.Error{Code: 409, Message: fmt.Sprintf("Istio's control plane is in namespace %s, and the root namespace of this mesh would be %s", f.Where, s.namespace),
				Fix: "--set mesh.rootNamespace=" + f.Where + ", or, if that is none of Istio's, --ignore-conflict=" + f.Where + "/" + f.name}
		}
		switch d := f.daemons; {
		case d == nil || !f.isIstio():
		case isZtunnel(d.ObjectMeta):
			s.ztunnels = append(s.ztunnels, d)
		default:
			s.cnis = append(s.cnis, d)
		}
		if name, ok := strings.CutPrefix(f.What, mutatingPrefix); ok {
			s.mutating = append(s.mutating, name)
		}
		if name, ok := strings.CutPrefix(f.What, validatingPrefix); ok {
			s.judging = append(s.judging, name)
		}
	}
	deployments, err := c.Client.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=istiod"})
	if err != nil {
		return nil, c.explain(err)
	}
	s.control = deployments.Items
	for _, name := range []string{pluggedIn, "istio-ca-secret"} { // the order in which Istio itself prefers them
		secret, err := c.Client.CoreV1().Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			s.authority = secret
			break
		} else if !apierrors.IsNotFound(err) {
			return nil, c.explain(err)
		}
	}
	return s, nil
}

// pluggedIn is the Secret of a CA that somebody plugged in, as Istio calls it, too.
const pluggedIn = "cacerts"

// inherit says how the mesh goes on with Istio's CA. The control plane takes a root that Istio made over into a Secret of its own. One that
// was plugged in is copied, so that the mesh does not hang on what somebody cleans up after Istio.
func (c *Cluster) inherit(o Options, authority *corev1.Secret) Move {
	if authority.Name != pluggedIn || authority.Namespace == o.Namespace {
		return Move{What: fmt.Sprintf("go on with Istio's CA from Secret %s/%s: the control plane adopts it when it starts", authority.Namespace, authority.Name)}
	}
	what := fmt.Sprintf("go on with the CA that is plugged into Istio: copy Secret %s/%s into namespace %s", authority.Namespace, authority.Name, o.Namespace)
	return Move{What: what, phase: phaseRights, do: func(ctx context.Context) error {
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: pluggedIn}, Type: authority.Type, Data: authority.Data}
		_, err := c.Client.CoreV1().Secrets(o.Namespace).Create(ctx, copied, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsAlreadyExists(err) {
			return nil // of a run before, or chosen by somebody
		}
		return err
	}}
}

// takeOver plans how this mesh comes into Istio's place while connections go on. Nothing is changed.
//
// The order is what keeps connections alive: first the CA, so that identities from before and after trust each other; then the control
// plane, to which running ztunnels turn by the name that they know; then agents and node proxies, which listen in captured pods beside the
// ztunnels, at the same ports; and only when all that is ready do Istio's own parts go.
func (c *Cluster) takeOver(o Options, s *istio) ([]Move, error) {
	if len(s.control) == 0 && len(s.ztunnels)+len(s.cnis) == 0 && s.authority == nil {
		return nil, &api.Error{Code: 404, Message: "there is no Istio to take over from: no Deployment with label app=istiod, no ztunnel, no istio-cni-node, and no CA in namespace " + s.namespace,
			Fix: "install without --take-over, or say which namespace is Istio's with --set mesh.rootNamespace=NAMESPACE"}
	}
	if s.authority == nil {
		return nil, &api.Error{Code: 409, Message: fmt.Sprintf("Istio's CA is neither in Secret %s/cacerts nor in %s/istio-ca-secret, so that workloads of both meshes would not trust each other", s.namespace, s.namespace),
			Fix: "if it signs by an external CA, put the root and an intermediate into the Secret cacerts of namespace " + o.Namespace + " and install again"}
	}
	moves := []Move{c.inherit(o, s.authority)}
	for _, name := range s.judging {
		what := "remove ValidatingWebhookConfiguration " + name + ", which would refuse all objects once istiod is gone"
		moves = append(moves, Move{What: what, phase: phaseRest, ends: thing{What: validatingPrefix + name}, do: func(ctx context.Context) error {
			return gone(c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}))
		}})
	}
	for _, name := range s.mutating {
		what := "remove MutatingWebhookConfiguration " + name + ", which puts sidecars into pods"
		moves = append(moves, Move{What: what, phase: phaseRest, ends: thing{What: mutatingPrefix + name}, do: func(ctx context.Context) error {
			return gone(c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{}))
		}})
	}
	for _, d := range s.control {
		what := fmt.Sprintf("scale Deployment %s/%s to 0: ztunnels turn to this control plane by the name istiod.%s.svc", d.Namespace, d.Name, s.namespace)
		moves = append(moves, Move{What: what, phase: phaseRest, ends: thing{What: deploymentPrefix + d.Name, Where: d.Namespace}, do: func(ctx context.Context) error {
			_, err := c.Client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{FieldManager: fieldManager})
			if err != nil {
				return err
			}
			return c.rollouts().podsGone(ctx, d.Namespace, metav1.FormatLabelSelector(d.Spec.Selector))
		}})
	}
	for _, d := range slices.Concat(s.cnis, s.ztunnels) {
		what := "remove DaemonSet %s/%s: this mesh's agents capture pods now"
		if isZtunnel(d.ObjectMeta) {
			what = "remove DaemonSet %s/%s: this mesh's node proxies listen in every captured pod now, and its connections end in their own time"
		}
		moves = append(moves, Move{What: fmt.Sprintf(what, d.Namespace, d.Name), phase: phaseRest, ends: thing{What: daemonSetPrefix + d.Name, Where: d.Namespace}, do: func(ctx context.Context) error {
			if err := gone(c.Client.AppsV1().DaemonSets(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{})); err != nil {
				return err
			}
			return c.rollouts().podsGone(ctx, d.Namespace, metav1.FormatLabelSelector(d.Spec.Selector))
		}})
	}
	return moves, nil
}

// remaining are the conflicts that no move ends. Istio's classes of Gateways are none: alone they harm nobody.
func remaining(found []Conflict, moves []Move) []Conflict {
	return slices.DeleteFunc(slices.Clone(found), func(f Conflict) bool {
		return f.isIstio() && (strings.HasPrefix(f.What, classPrefix) || slices.ContainsFunc(moves, func(m Move) bool { return m.ends == thing{f.What, f.Where} }))
	})
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
