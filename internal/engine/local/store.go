package local

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/merge"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// stored is one object of the user's, as it is now.
type stored struct {
	files.Object
	live    merge.Object // the object in force, with the engine's additions
	applied merge.Object // the object in the last manifest; nil if it never came from one
	dir     string       // directory of that manifest
	uid     string
	created time.Time
	version int64  // counts what was made of it, from 1; its metadata.generation
	digest  string // of what is written down
}

// store holds the user's objects and keeps a copy of them in a directory for the control plane. It has no lock of its own.
// Pods are not in it: the engine reports those itself.
type store struct {
	dir      string
	families []*fabric.Family // the mesh's
	objects  map[model.Key]*stored
	now      func() time.Time
	newUID   func() string
}

func newStore(dir string, families []*fabric.Family, now func() time.Time, newUID func() string) *store {
	return &store{dir: dir, families: families, objects: map[model.Key]*stored{}, now: now, newUID: newUID}
}

// list returns the objects of a kind, sorted by key.
func (s *store) list(kind string) []*stored {
	var out []*stored
	for k, o := range s.objects {
		if k.Kind == kind {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *stored) int { return a.Key.Compare(b.Key) })
	return out
}

// find looks an object up. A key without a group of a kind name that two groups share yields the first of them; see only.
func (s *store) find(k api.Key) *stored {
	for _, o := range s.list(k.Kind) {
		if o.Key.Namespace == k.Namespace && o.Key.Name == k.Name && (k.Group == "" || o.Key.Group == k.Group) {
			return o
		}
	}
	return nil
}

// only returns the object of a key that is to be changed, or nil. It fails if the key can mean objects of two groups.
func (s *store) only(k api.Key) (*stored, error) {
	o := s.find(k)
	for _, group := range api.SharedKind(k.Kind) {
		if other := s.objects[model.Key{Group: group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}]; k.Group == "" && other != nil && other != o {
			return nil, api.Ambiguous(k)
		}
	}
	return o, nil
}

func (s *store) namespaceExists(name string) bool {
	return s.objects[model.Key{Kind: "Namespace", Name: name}] != nil
}

// apply takes an object from a manifest.
func (s *store) apply(o files.Object, dir string, dryRun bool) (api.Action, error) {
	action, _, err := s.merge(o, dir, dryRun)
	return action, err
}

// merge is apply, and returns what the object is then, or would be after a dry run.
func (s *store) merge(o files.Object, dir string, dryRun bool) (api.Action, *stored, error) {
	next, err := merge.Parse(o.JSON)
	if err != nil {
		return "", nil, err
	}
	next = inNamespace(next, o.Key)
	old := s.objects[o.Key]
	live := next
	if old != nil {
		live = merge.Apply(old.applied, old.live, next)
	}
	return s.put(o, old, live, func(n *stored) { n.applied, n.dir = next, dir }, dryRun)
}

// patch applies a JSON merge patch to an object.
func (s *store) patch(old *stored, patch merge.Object, dryRun bool) (api.Action, error) {
	action, _, err := s.put(old.Object, old, merge.Patch(old.live, patch), func(*stored) {}, dryRun)
	return action, err
}

// put makes live the new state of an object and writes it down, unless it is a dry run. It returns that state.
func (s *store) put(o files.Object, old *stored, live merge.Object, set func(*stored), dryRun bool) (api.Action, *stored, error) {
	n := &stored{Object: o, uid: s.newUID(), created: s.now().UTC().Truncate(time.Second), version: 1}
	if old != nil {
		n.uid, n.created, n.version, n.applied, n.dir = old.uid, old.created, old.version, old.applied, old.dir
	}
	live = merge.Set(live, n.uid, "metadata", "uid")
	live = merge.Set(live, n.created.Format(time.RFC3339), "metadata", "creationTimestamp")
	if o.Kind == "Service" {
		var err error
		if live, err = s.address(o.Key, old, live); err != nil {
			return "", nil, err
		}
	}
	live = merge.Set(live, n.version, "metadata", "generation")
	same := old != nil && merge.Equal(old.live, live)
	if old != nil && !same {
		// An object that is again as it once was is another version: the control plane may not have heard of the one between.
		n.version++
		live = merge.Set(live, n.version, "metadata", "generation")
	}
	set(n)
	text, err := yaml.Marshal(live)
	if err != nil {
		return "", nil, err
	}
	// The merged object is decoded as strictly as one from a file.
	decoded, err := decodeOne(o.File, text)
	if err != nil {
		return "", nil, err
	}
	if decoded.Key != o.Key {
		return "", nil, fmt.Errorf("%s: an object cannot be renamed or change its kind; delete it and apply the new one", o.Key)
	}
	if spec := podSpecOf(decoded.Value); spec != nil {
		if err := errors.Join(checkHostNetwork(o.Key, spec), checkNames(o.Key, spec)); err != nil {
			return "", nil, err
		}
	}
	if old != nil {
		if err := immutable(old, &decoded); err != nil {
			return "", nil, err
		}
	}
	file, line := n.File, n.Line
	n.Object, n.live = decoded, live
	n.File, n.Line, n.digest = file, line, decoded.Digest()
	action := api.Created
	if old != nil {
		action = api.Configured
		if same {
			action, n.digest = api.Unchanged, old.digest
		}
	}
	if dryRun {
		return action, n, nil
	}
	if action != api.Unchanged && !engineOnly(o.Kind) {
		if err := writeAtomic(s.file(o.Key), text, 0o644); err != nil {
			return "", nil, fmt.Errorf("store %s: %w", o.Key, err)
		}
	}
	s.objects[o.Key] = n
	return action, n, nil
}

func (s *store) remove(k model.Key) error {
	delete(s.objects, k)
	if err := os.Remove(s.file(k)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", k, err)
	}
	return nil
}

// engineOnly says that a kind is the engine's to report, so that the control plane must not read the user's version too.
func engineOnly(kind string) bool { return kind == "Pod" || kind == "Node" }

// file is where an object is written down. A kind name that two groups share is told apart by its group.
func (s *store) file(k model.Key) string {
	kind := strings.ToLower(k.Kind)
	if k.Kind == "Gateway" {
		group, _, _ := strings.Cut(k.Group, ".")
		kind += "-" + group
	}
	parts := []string{kind}
	if k.Namespace != "" {
		parts = append(parts, k.Namespace)
	}
	return filepath.Join(s.dir, fileName(strings.Join(append(parts, k.Name), "."))+".yaml")
}

// podSpecOf is the spec of the pods that an object asks for, or nil.
func podSpecOf(v any) *corev1.PodSpec {
	switch v := v.(type) {
	case *appsv1.Deployment:
		return &v.Spec.Template.Spec
	case *corev1.Pod:
		return &v.Spec
	}
	return nil
}

// immutable refuses changes that Kubernetes refuses too, because what runs already depends on them.
func immutable(old *stored, next *files.Object) error {
	const fix = "delete the object and apply it again"
	switch a := old.Value.(type) {
	case *corev1.Pod:
		b := next.Value.(*corev1.Pod)
		if !equalJSON(a.Spec, b.Spec) {
			return fmt.Errorf("%s: a pod's spec cannot change once it is made; %s", next.Key, fix)
		}
	default:
		if sel, ok := selectorOf(old.Value); ok {
			if now, _ := selectorOf(next.Value); !equalJSON(sel, now) {
				return fmt.Errorf("%s: spec.selector cannot change; %s", next.Key, fix)
			}
		}
	}
	return nil
}

// inNamespace writes the namespace into an object that left it open, so that it means the same wherever it is read.
func inNamespace(o merge.Object, k model.Key) merge.Object {
	if k.Namespace == "" {
		return o
	}
	return merge.Set(o, k.Namespace, "metadata", "namespace")
}

// decodeOne decodes exactly one object.
func decodeOne(file string, text []byte) (files.Object, error) {
	objects, problems := files.Decode(file, text)
	for _, p := range problems {
		if p.Severity == files.Refused {
			return files.Object{}, &problemError{p}
		}
	}
	if len(objects) != 1 {
		return files.Object{}, fmt.Errorf("%s: want one object, have %d", file, len(objects))
	}
	return objects[0], nil
}

// problemError carries a problem as an error, field and fix kept apart.
type problemError struct{ files.Problem }

func (e *problemError) Error() string { return e.Problem.Error() }

// labelsOf are an object's labels.
func (o *stored) labels() map[string]string {
	m, _ := merge.Get(o.live, "metadata", "labels")
	labels := map[string]string{}
	if m, ok := m.(merge.Object); ok {
		for k, v := range m {
			if v, ok := v.(string); ok {
				labels[k] = v
			}
		}
	}
	return labels
}

// inNamespaceOf lists the objects in a namespace.
func (s *store) inNamespace(ns string) []model.Key {
	var keys []model.Key
	for k := range maps.Keys(s.objects) {
		if k.Namespace == ns {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, model.Key.Compare)
	return keys
}
