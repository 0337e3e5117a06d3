package local

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// A waypoint's pod has these directories of the mesh, which no other pod sees: its token, and the mesh's root certificates.
const (
	podTokenDir = podRunDir + "/token"
	podRootsDir = podRunDir + "/pki"
	tokenName   = "istio-token"
)

// waypoints keeps the objects of the Gateways of class lateen-waypoint in the store, where they are deployed like any others. Its fields
// never change; the state's lock guards the objects.
type waypoints struct {
	state    *state
	settings waypoint.Settings
	program  string   // as a pod sees it
	env      []string // NAME=VALUE, of every proxy besides
	log      *slog.Logger
}

func newWaypoints(s *state, o Options, families []*fabric.Family, log *slog.Logger) *waypoints {
	return &waypoints{state: s, log: log, program: o.waypointProxy(),
		env: append([]string{"IPV6_ENABLED=" + strconv.FormatBool(slices.Contains(families, fabric.IPv6))}, o.CA.env()...),
		settings: waypoint.Settings{Image: "lateen/proxy", Control: "https://" + net.JoinHostPort(families[0].FabricIP.String(), "15012"), TrustDomain: trustDomain,
			ClusterID: "Kubernetes", ClusterDomain: clusterDomain, LogLevel: cmp.Or(os.Getenv("RUST_LOG"), "info"), Version: labelValue(o.Version), TerminationGraceSeconds: 30}}
}

// labelValue is a version as a label can hold it.
func labelValue(version string) string {
	keep := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}
	version = strings.Map(keep, version)
	return strings.Trim(version[:min(len(version), 63)], "-._")
}

// steer makes, changes and removes the objects of Gateways. The state's lock must be held.
func (w *waypoints) steer() {
	wanted := map[model.Key]model.Key{}
	for _, o := range w.state.store.list("Gateway") {
		gw, is := o.Value.(*gatewayv1.Gateway)
		if !is || !waypoint.Serves(string(gw.Spec.GatewayClassName), w.class(string(gw.Spec.GatewayClassName)), false) {
			w.complain(o.Key, nil)
			continue
		}
		manifests, err := w.manifests(o, gw)
		if err == nil {
			err = w.apply(o, manifests)
		}
		// Objects of a Gateway that is wrong now stay as they were: its traffic is not to stop because of it.
		for object, of := range w.state.made {
			if of == o.Key && (err != nil || slices.ContainsFunc(manifests, func(m *unstructured.Unstructured) bool { return keyOf(m) == object })) {
				wanted[object] = of
			}
		}
		w.complain(o.Key, err)
	}
	for object, of := range w.state.made {
		if _, is := wanted[object]; is {
			continue
		}
		delete(w.state.made, object)
		if w.handedOver(object, of) {
			continue
		}
		if err := w.state.store.remove(object); err != nil {
			w.log.Error("remove an object of a waypoint", "object", object.String(), "err", err)
		}
	}
}

// handedOver says whether an object is the account that its Gateway's author names. It is the author's from then on, and stays.
func (w *waypoints) handedOver(object, gateway model.Key) bool {
	o := w.state.store.objects[gateway]
	if o == nil || object.Kind != "ServiceAccount" {
		return false
	}
	gw, is := o.Value.(*gatewayv1.Gateway)
	return is && waypoint.NamesAccount(gw) && waypoint.Account(gw) == object.Name
}

// complain keeps why a Gateway is not deployed; nil ends the complaint.
func (w *waypoints) complain(k model.Key, err error) {
	if err == nil {
		delete(w.state.complaints, k)
		return
	}
	if w.state.complaints[k] != err.Error() {
		w.log.Warn("a waypoint cannot be deployed", "gateway", k.String(), "err", err)
	}
	w.state.complaints[k] = err.Error()
}

func (w *waypoints) class(name string) *gatewayv1.GatewayClass {
	if o := w.state.store.objects[model.Key{Group: model.GatewayGroup, Kind: "GatewayClass", Name: name}]; o != nil {
		class, _ := o.Value.(*gatewayv1.GatewayClass)
		return class
	}
	return nil
}

// manifests are the objects of a Gateway as the engine runs them: those that package waypoint makes, with the proxy's program in place of its image.
func (w *waypoints) manifests(o *stored, gw *gatewayv1.Gateway) ([]*unstructured.Unstructured, error) {
	gw = gw.DeepCopy()
	gw.Namespace = o.Key.Namespace
	if !waypoint.Deployed(gw) {
		return nil, nil
	}
	in := waypoint.Input{Gateway: gw, Settings: w.settings}
	name, err := waypoint.ParametersOf(in)
	if err != nil {
		return nil, err
	}
	if p := w.state.store.objects[model.Key{Kind: "ConfigMap", Namespace: gw.Namespace, Name: name}]; p != nil {
		in.Parameters, _ = p.Value.(*corev1.ConfigMap)
	}
	for _, p := range w.state.store.list("ConfigMap") {
		if m, is := p.Value.(*corev1.ConfigMap); is && p.Key.Namespace == meshNamespace && m.Labels[wellknown.GatewayClassDefaults] == string(gw.Spec.GatewayClassName) {
			in.Defaults = append(in.Defaults, *m)
		}
	}
	objects, err := waypoint.Build(in)
	if err != nil {
		return nil, err
	}
	w.localise(objects.Deployment)
	objects.Autoscaler, objects.Budget = nil, nil // nothing acts on them here
	return objects.Manifests()
}

// localise makes of a Deployment for a cluster one that the engine can run.
func (w *waypoints) localise(d *appsv1.Deployment) {
	spec := &d.Spec.Template.Spec
	spec.Volumes, spec.TopologySpreadConstraints, spec.ImagePullSecrets = nil, nil, nil
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.StartupProbe = nil
		if c.Name != waypoint.Container {
			continue
		}
		c.Command, c.VolumeMounts = []string{w.program}, nil
		for j, v := range c.Env {
			switch v.Value {
			case waypoint.RootFile:
				c.Env[j].Value = podRootsDir + "/root-cert.pem"
			case waypoint.TokenFile:
				c.Env[j].Value = podTokenDir + "/" + tokenName
			}
		}
		for _, pair := range w.env {
			name, value, _ := strings.Cut(pair, "=")
			if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name }) {
				c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
			}
		}
	}
}

func keyOf(m *unstructured.Unstructured) model.Key {
	gvk := m.GroupVersionKind()
	return model.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: m.GetNamespace(), Name: m.GetName()}
}

// apply brings objects into the store. None is touched if one of them is somebody else's.
func (w *waypoints) apply(o *stored, manifests []*unstructured.Unstructured) error {
	for _, m := range manifests {
		key := keyOf(m)
		if of, made := w.state.made[key]; w.state.store.objects[key] != nil && (!made || of != o.Key) {
			return taken(o.Key, key)
		}
	}
	var errs []error
	for _, m := range manifests {
		text, err := yaml.Marshal(m.Object)
		if err != nil {
			return err
		}
		object, err := decodeOne("engine", text)
		if err == nil {
			object.File = ""
			_, err = w.state.store.apply(object, "", false)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.state.made[object.Key] = o.Key
	}
	return errors.Join(errs...)
}

// taken is the error of a Gateway one of whose objects somebody else has made.
func taken(gateway, key model.Key) error {
	if key.Kind == "ServiceAccount" {
		return fmt.Errorf("ServiceAccount %s/%s exists and was not made for this Gateway; name it in the Gateway's annotation %s if the waypoint is to run as it, or give the Gateway another name",
			key.Namespace, key.Name, wellknown.GatewayServiceAccount)
	}
	return fmt.Errorf("%s %s/%s exists and was not made for this Gateway; delete it with `lateen delete %s %s -n %s`, or give the Gateway another name",
		key.Kind, key.Namespace, key.Name, strings.ToLower(key.Kind), key.Name, gateway.Namespace)
}

// madeFor are the objects that were made for a Gateway, in an order that does not change. The state's lock must be held.
func (s *state) madeFor(gateway model.Key) []model.Key {
	var keys []model.Key
	for object, of := range s.made {
		if of == gateway {
			keys = append(keys, object)
		}
	}
	slices.SortFunc(keys, model.Key.Compare)
	return keys
}
