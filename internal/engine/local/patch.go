package local

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/merge"
	"lateen.dev/lateen/internal/model/wellknown"
)

// patch changes one object.
func (u *userObjects) patch(r api.PatchRequest) (api.ObjectResult, error) {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	r.Key = inKind(r.Key)
	patch, err := merge.Parse(r.Patch)
	if err != nil {
		return api.ObjectResult{}, &api.Error{Code: http.StatusBadRequest, Message: "the patch is not a JSON object: " + err.Error()}
	}
	var action api.Action
	switch {
	case r.Key.Kind == "Node":
		action, err = u.patchNode(r.Key, patch, r.DryRun)
	case r.Key.Kind == "Pod" && u.state.store.find(r.Key) == nil:
		action, err = u.patchOwnedPod(r.Key, patch, r.DryRun)
	default:
		o, ambiguous := u.state.store.only(r.Key)
		if ambiguous != nil {
			return api.ObjectResult{}, ambiguous
		}
		if o == nil {
			return api.ObjectResult{}, notFound(r.Key)
		}
		if err := precondition(r, o); err != nil {
			return api.ObjectResult{}, err
		}
		if action, err = u.state.store.patch(o, patch, r.DryRun); err == nil && !r.DryRun {
			u.changed(o.Key)
		}
	}
	var refused *problemError
	if errors.As(err, &refused) {
		// The error's place is in the merged object, which no file has.
		refused.File, refused.Line, refused.Object = "", 0, ""
		fix := refused.Fix
		refused.Fix = ""
		return api.ObjectResult{}, &api.Error{Code: http.StatusBadRequest, Message: strings.TrimPrefix(refused.Error(), ": "), Fix: fix}
	}
	if err != nil {
		return api.ObjectResult{}, err
	}
	if !r.DryRun {
		u.state.kick()
	}
	res := api.ObjectResult{Key: r.Key, Action: action}
	if changed, ok := merge.Get(patch, "metadata", "labels"); ok {
		if labels, ok := changed.(merge.Object); ok {
			if mode, ok := labels[wellknown.DataplaneMode].(string); ok {
				res.Warnings = appendText(res.Warnings, modeWarning(map[string]string{wellknown.DataplaneMode: mode}))
			}
		}
	}
	return res, nil
}

// precondition is the error of a patch that was made for another version of an object.
func precondition(r api.PatchRequest, o *stored) error {
	if (r.UID == "" || r.UID == o.uid) && (r.Generation == 0 || r.Generation == o.version) {
		return nil
	}
	return &api.Error{Code: http.StatusConflict, Message: r.Key.String() + " was changed by another command since it was read", Fix: "read it again and repeat the change"}
}

// patchNode changes a node's labels, the only thing about it that users may change. The state's lock must be held.
func (u *userObjects) patchNode(k api.Key, patch merge.Object, dryRun bool) (api.Action, error) {
	n := u.state.nodes.named(k.Name)
	if n == nil {
		return "", notFound(k)
	}
	next, err := patchMetadata(patch, metadata{"labels": n.labels})
	if err != nil {
		return "", err
	}
	action := changeOf(metadata{"labels": n.labels}, next)
	if !dryRun {
		n.labels = next["labels"]
	}
	return action, nil
}

// patchOwnedPod changes the labels and annotations of a pod that is a Deployment's. The state's lock must be held.
func (u *userObjects) patchOwnedPod(k api.Key, patch merge.Object, dryRun bool) (api.Action, error) {
	for _, p := range u.state.pods {
		if p.id.namespace == k.Namespace && p.id.name == k.Name {
			old := metadata{"labels": p.labels, "annotations": p.annotations}
			next, err := patchMetadata(patch, old)
			if err != nil {
				return "", err
			}
			next["annotations"] = ownAnnotations(next["annotations"])
			action := changeOf(old, next)
			if !dryRun {
				p.labels, p.annotations = next["labels"], next["annotations"]
				p.wake()
			}
			return action, nil
		}
	}
	return "", notFound(k)
}

// metadata are the maps of an object's metadata that may be changed, by the field's name.
type metadata map[string]map[string]string

// changeOf says what a patch does with metadata.
func changeOf(old, next metadata) api.Action {
	for field := range old {
		if !maps.Equal(old[field], next[field]) {
			return api.Configured
		}
	}
	return api.Unchanged
}

// patchMetadata applies a JSON merge patch to the maps that an object has, and refuses one that changes anything else.
func patchMetadata(patch merge.Object, old metadata) (metadata, error) {
	fields := slices.Sorted(maps.Keys(old))
	only := &api.Error{Code: http.StatusBadRequest, Message: "only metadata." + strings.Join(fields, " and metadata.") + " of this object can be changed",
		Fix: "change the Deployment or the manifest that it comes from"}
	meta, ok := patch["metadata"].(merge.Object)
	if !ok || len(patch) != 1 {
		return nil, only
	}
	next := metadata{}
	for field, values := range old {
		next[field] = maps.Clone(values)
	}
	for field, change := range meta {
		if _, known := old[field]; !known {
			return nil, only
		}
		values, ok := change.(merge.Object)
		if !ok {
			return nil, only
		}
		if next[field] == nil {
			next[field] = map[string]string{}
		}
		for k, v := range values {
			switch v := v.(type) {
			case nil:
				delete(next[field], k)
			case string:
				next[field][k] = v
			default:
				return nil, &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("metadata.%s: the value of %s is not text", field, k), Fix: "write it in quotes"}
			}
		}
	}
	return next, nil
}
