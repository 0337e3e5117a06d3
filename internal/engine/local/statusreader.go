package local

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
)

// statusReader reads what the control plane says about objects. Its fields never change; the state's lock guards the objects.
type statusReader struct {
	state *state
	log   *slog.Logger
}

func newStatusReader(s *state, log *slog.Logger) *statusReader {
	return &statusReader{state: s, log: log}
}

// read is what the control plane says about the objects of a kind as they are now; of every kind if it is empty.
func (r *statusReader) read(ctx context.Context, kind string) ([]controlObject, error) {
	// A control plane that hangs must not take every look at the mesh with it.
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	b, err := fetchControl(ctx, "/debug/objects?"+url.Values{"kind": {kind}}.Encode())
	if err != nil {
		return nil, err
	}
	var objects []controlObject
	if err := json.Unmarshal(b, &objects); err != nil {
		r.log.Warn("the control plane's list of objects cannot be read", "err", err)
		return nil, fmt.Errorf("its list of objects cannot be read: %w", err)
	}
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return ofThisVersion(objects, r.state.store.objects), nil
}

// controlObject is an entry of the control plane's list of objects.
type controlObject struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Generation uint64          `json:"generation"`
	Digest     string          `json:"digest"`
	Conditions []api.Condition `json:"conditions"`
	Problems   []api.Problem   `json:"problems"`
	Findings   []api.Finding   `json:"findings"`
	// former says that it speaks of a version that was replaced.
	former bool
}

// key names the object.
func (o controlObject) key() model.Key {
	return model.Key{Group: groupOf(o.APIVersion), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// attach gives each object what is said of it, and not of one that another group calls the same.
func attach(kind string, items []api.Object, all []controlObject) {
	said := map[model.Key]controlObject{}
	for _, o := range all {
		if o.Kind == kind {
			said[o.key()] = o
		}
	}
	for i := range items {
		k := items[i].Key
		o, known := said[model.Key{Group: groupOf(items[i].APIVersion), Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}]
		items[i].Conditions, items[i].Problems, items[i].Findings, items[i].Judged = o.Conditions, o.Problems, o.Findings, known && !o.former
	}
}

// ofThisVersion leaves out what is said of objects as they were before. The control plane reads what was applied a moment later, and time
// does not tell which version it speaks of. Those that the engine does not keep are as they were reported.
func ofThisVersion(said []controlObject, objects map[model.Key]*stored) []controlObject {
	for i, o := range said {
		now, kept := objects[o.key()]
		if kept && !engineOnly(o.Kind) && o.Digest != "" && now.digest != o.Digest {
			said[i].Conditions, said[i].Findings, said[i].former = nil, nil, true
		}
	}
	return said
}
