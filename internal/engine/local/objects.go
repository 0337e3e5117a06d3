package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/merge"
	"lateen.dev/lateen/internal/engine/local/podspec"
	"lateen.dev/lateen/internal/engine/local/schedule"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/spelling"
)

// systemNamespaces exist in every mesh.
var systemNamespaces = []string{"default", "kube-system", meshNamespace}

// meshNamespace is where the parts of the mesh live.
const meshNamespace = "istio-system"

const defaultNamespace = "default"

// userObjects applies, changes, deletes and lists the user's objects. Its fields never change; the state's lock guards the objects.
type userObjects struct {
	state    *state
	statuses *statusReader
}

func newUserObjects(s *state, statuses *statusReader) *userObjects {
	return &userObjects{state: s, statuses: statuses}
}

// apply takes the objects of all documents, one by one: what is wrong with one costs none of the others. made are the objects of the results.
func (u *userObjects) apply(r api.ApplyRequest) (res api.ApplyResult, made []*stored) {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	planned := map[string]bool{} // namespaces that a dry run would make
	for _, d := range r.Documents {
		objects, problems := decodeIn(d, r.Namespace)
		warnings := map[string][]string{}
		for _, p := range problems {
			if p.Severity == files.Refused {
				res.Problems = append(res.Problems, problemOf(p))
			} else {
				warnings[p.Object] = append(warnings[p.Object], warningText(p))
			}
		}
		for _, o := range objects {
			result, now, err := u.applyOne(o, d.Dir, r, planned)
			if err != nil {
				res.Problems = append(res.Problems, refusal(o, err))
				continue
			}
			result.Warnings = append(warnings[o.Key.String()], u.warnings(o)...)
			res.Results = append(res.Results, result)
			made = append(made, now)
		}
	}
	u.state.kick()
	return res, made
}

// decodeIn decodes a document; an object that names no namespace goes to the given one.
func decodeIn(d api.Document, namespace string) ([]files.Object, []files.Problem) {
	objects, problems := files.Decode(d.File, d.Data)
	if namespace == "" || namespace == defaultNamespace {
		return objects, problems
	}
	for i, o := range objects {
		if o.Key.Namespace != "" && !namesNamespace(o.JSON) {
			objects[i].Key.Namespace = namespace
			objects[i].JSON = withNamespace(o.JSON, namespace)
			if m, ok := o.Value.(metav1.Object); ok {
				m.SetNamespace(namespace)
			}
		}
	}
	return objects, problems
}

func namesNamespace(raw []byte) bool {
	var head struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	return json.Unmarshal(raw, &head) == nil && head.Metadata.Namespace != ""
}

func withNamespace(raw []byte, namespace string) []byte {
	o, err := merge.Parse(raw)
	if err != nil {
		return raw
	}
	b, err := json.Marshal(merge.Set(o, namespace, "metadata", "namespace"))
	if err != nil {
		return raw
	}
	return b
}

// applyOne takes one object, and returns it as it is then. In a dry run planned are the namespaces of objects before it, and gets its own.
func (u *userObjects) applyOne(o files.Object, dir string, r api.ApplyRequest, planned map[string]bool) (api.ObjectResult, *stored, error) {
	if o.Kind == "Node" {
		return api.ObjectResult{}, nil, errors.New("nodes are made by `lateen up --nodes N`, not by manifests; label one with `lateen label node`")
	}
	if o.Key.Namespace != "" && !u.state.store.namespaceExists(o.Key.Namespace) && !planned[o.Key.Namespace] {
		return api.ObjectResult{}, nil, u.noNamespace(o.Key.Namespace)
	}
	if o.Kind == "Pod" {
		if err := u.admitPod(o); err != nil {
			return api.ObjectResult{}, nil, err
		}
	}
	old := u.state.store.objects[o.Key]
	action, next, err := u.state.store.merge(o, dir, r.DryRun)
	if err != nil {
		return api.ObjectResult{}, nil, err
	}
	result := api.ObjectResult{Key: apiKey(o.Key), Action: action}
	if r.DryRun {
		planned[o.Key.Name] = planned[o.Key.Name] || o.Kind == "Namespace"
		if r.Diff {
			result.Before, result.After, err = versionsOf(old, next)
		}
		return result, next, err
	}
	if o.Kind == "Namespace" {
		if err := u.addDefaultAccount(o.Key.Name); err != nil {
			return api.ObjectResult{}, nil, err
		}
	}
	u.changed(o.Key)
	return result, next, nil
}

// noNamespace is the error of an object in a namespace that does not exist.
func (u *userObjects) noNamespace(name string) error {
	var names []string
	for _, o := range u.state.store.list("Namespace") {
		names = append(names, o.Key.Name)
	}
	fix := "apply a Namespace of that name first"
	if near := spelling.Nearest(name, names); near != "" {
		fix = fmt.Sprintf("did you mean %s? If not, %s", near, fix)
	}
	return &problemError{files.Problem{Message: fmt.Sprintf("namespace %q not found", name), Fix: fix}}
}

// unfit says why none of the nodes can ever take such pods; empty if one can. Whether a node has room is not asked: that changes.
func (u *userObjects) unfit(spec *corev1.PodSpec) string {
	var nodes []schedule.Node
	for _, n := range u.state.nodes {
		nodes = append(nodes, schedule.Node{Name: n.name, Labels: n.labels, Free: 1})
	}
	if _, err := schedule.Pick(nodes, spec.NodeName, spec.NodeSelector); err != nil && len(nodes) > 0 {
		return "its pods wait: " + err.Error()
	}
	return ""
}

// versionsOf are an object before and after a change as JSON, without what the engine made up for an object that is not there yet.
func versionsOf(old, next *stored) (before, after json.RawMessage, err error) {
	live := next.live
	if old != nil {
		if before, err = json.Marshal(old.live); err != nil {
			return nil, nil, err
		}
	} else {
		live = merge.Patch(live, merge.Object{"metadata": merge.Object{"uid": nil, "creationTimestamp": nil}})
	}
	after, err = json.Marshal(live)
	return before, after, err
}

// admitPod refuses a pod whose name another pod has, such as one of a Deployment.
func (u *userObjects) admitPod(o files.Object) error {
	for _, p := range u.state.pods {
		if p.id.namespace == o.Key.Namespace && p.id.name == o.Key.Name && (p.id.owner != o.Key || p.stopping) {
			return errors.New("a pod of this name is still there; delete it, or wait until it is gone")
		}
	}
	if p := u.state.nodes.ofProxyPod(o.Key.Namespace, o.Key.Name); p != nil {
		return errors.New("this name belongs to a node's proxy; choose another")
	}
	return nil
}

// addDefaultAccount gives a namespace the account that pods have which name none.
func (u *userObjects) addDefaultAccount(namespace string) error {
	key := model.Key{Kind: "ServiceAccount", Namespace: namespace, Name: "default"}
	if u.state.store.objects[key] != nil {
		return nil
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: default\n  namespace: %s\n", namespace)
	o, err := decodeOne("engine", []byte(text))
	if err != nil {
		return err
	}
	o.File = ""
	_, err = u.state.store.apply(o, "", false)
	return err
}

// addSystem makes the objects that every mesh has: the namespaces, and the account of the node proxies.
func (u *userObjects) addSystem() error {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	for _, ns := range systemNamespaces {
		if err := u.addNamespace(ns); err != nil {
			return err
		}
	}
	account, err := decodeOne("engine", fmt.Appendf(nil, "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: %s\n  namespace: %s\n", proxyAccount, meshNamespace))
	if err != nil {
		return err
	}
	account.File = ""
	_, err = u.state.store.apply(account, "", false)
	return err
}

func (u *userObjects) addNamespace(name string) error {
	o, err := decodeOne("engine", fmt.Appendf(nil, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n    kubernetes.io/metadata.name: %s\n", name, name))
	if err != nil {
		return err
	}
	o.File = ""
	if _, err := u.state.store.apply(o, "", false); err != nil {
		return err
	}
	return u.addDefaultAccount(name)
}

// warnings are what the author of an object may expect and not get.
func (u *userObjects) warnings(o files.Object) []string {
	var w []string
	if m, ok := o.Value.(metav1.Object); ok {
		w = appendText(w, modeWarning(m.GetLabels()))
	}
	var spec *corev1.PodSpec
	switch v := o.Value.(type) {
	case *appsv1.Deployment:
		spec = &v.Spec.Template.Spec
		w = appendText(w, modeWarning(v.Spec.Template.Labels))
		w = appendText(w, captureWarning(v.Spec.Template.Annotations))
	case *corev1.Pod:
		spec = &v.Spec
		w = appendText(w, captureWarning(v.Annotations))
	case *corev1.Service:
		if len(v.Spec.Selector) == 0 && v.Spec.Type != corev1.ServiceTypeExternalName {
			w = append(w, "has no selector and therefore no pods: Endpoints written by hand are not read here")
		}
		if v.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
			w = append(w, "sessionAffinity has no effect here")
		}
	}
	if spec != nil {
		if spec.HostNetwork {
			w = append(w, "with hostNetwork it "+outsideTheMesh)
		}
		for _, f := range podspec.Ineffective(spec) {
			w = append(w, "no effect here: "+f)
		}
		if sa := podspec.ServiceAccountOf(spec); u.state.store.find(api.Key{Kind: "ServiceAccount", Namespace: o.Key.Namespace, Name: sa}) == nil {
			w = append(w, fmt.Sprintf("its pods wait until there is a ServiceAccount %q", sa))
		}
		if d, ok := o.Value.(*appsv1.Deployment); !ok || d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			w = appendText(w, u.unfit(spec))
		}
	}
	return w
}

func appendText(texts []string, text string) []string {
	if text == "" {
		return texts
	}
	return append(texts, text)
}

// changed lets the pods concerned know that what they depend on may be different now.
func (u *userObjects) changed(k model.Key) {
	for _, p := range u.state.pods {
		switch {
		case k.Kind == "Pod" && p.id.owner == k:
			if o := u.state.store.objects[k]; o != nil {
				src := o.Value.(*corev1.Pod)
				p.labels, p.annotations = src.Labels, ownAnnotations(src.Annotations)
			}
		case k.Kind == "Namespace" && p.id.namespace == k.Name:
		default:
			continue
		}
		p.wake()
	}
}

// notFound is the error of a request for an object that does not exist. Its fix lists the objects that do, where it was looked for.
func notFound(k api.Key) error {
	plural, where, flag := strings.ToLower(k.Kind), "", ""
	if kind, ok := api.LookupKind(k.Kind); ok {
		plural = kind.Plural
	}
	if k.Namespace != "" {
		where, flag = " in namespace "+k.Namespace, " -n "+k.Namespace
	}
	return &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("%s %q not found%s", k.Word(), k.Name, where),
		Fix: fmt.Sprintf("`lateen get %s%s` lists those that exist", plural, flag)}
}

func apiKey(k model.Key) api.Key {
	return api.Key{Group: api.SharedGroup(k.Kind, k.Group), Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
}

func problemOf(p files.Problem) api.Problem {
	return api.Problem{Severity: p.Severity.String(), File: p.File, Line: p.Line, Object: p.Object, Field: p.Field, Message: p.Message, Fix: p.Fix}
}

func warningText(p files.Problem) string {
	p.File, p.Line, p.Object = "", 0, ""
	return strings.TrimPrefix(p.Error(), ": ")
}

// refusal says what is wrong with an object that decoded well.
func refusal(o files.Object, err error) api.Problem {
	p := api.Problem{File: o.File, Line: o.Line, Object: o.Key.String()}
	var pe *problemError
	if errors.As(err, &pe) {
		p.Field, p.Message, p.Fix = pe.Field, pe.Message, pe.Fix
		return p
	}
	p.Message = strings.TrimPrefix(err.Error(), o.Key.String()+": ")
	return p
}

func equalJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// selectorOf is the part of an object that decides which pods are its own and must therefore stay.
func selectorOf(v any) (any, bool) {
	if d, ok := v.(*appsv1.Deployment); ok {
		return d.Spec.Selector, true
	}
	return nil, false
}
