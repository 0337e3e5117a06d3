package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/source/files"
)

// serveDelete deletes objects, and waits for the ends of their pods if it is asked to.
func (u *userObjects) serveDelete(ctx context.Context, r api.DeleteRequest) (any, error) {
	res, pods := u.delete(r)
	if r.Wait && !r.DryRun {
		for _, p := range pods {
			select {
			case <-p.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return res, nil
}

// delete removes objects by name and by document.
func (u *userObjects) delete(r api.DeleteRequest) (api.ApplyResult, []*pod) {
	u.state.mu.Lock()
	defer u.state.mu.Unlock()
	var res api.ApplyResult
	keys := slices.Clone(r.Keys)
	for _, d := range r.Documents {
		// An object that is to go needs a name and nothing else: a mistake in the rest keeps nobody from removing it.
		objects, problems := files.Identities(d.File, d.Data)
		for _, p := range problems {
			res.Problems = append(res.Problems, problemOf(p))
		}
		for _, o := range slices.Backward(objects) { // objects are deleted in the reverse order
			if o.Bare && r.Namespace != "" {
				o.Key.Namespace = r.Namespace
			}
			keys = append(keys, apiKey(o.Key))
		}
	}
	var gone []*pod
	for _, k := range keys {
		pods, err := u.deleteOne(k, r)
		var apiErr *api.Error
		switch {
		case errors.As(err, &apiErr) && apiErr.Code == http.StatusNotFound && r.IgnoreNotFound:
		case apiErr != nil:
			res.Problems = append(res.Problems, api.Problem{Object: k.String(), Message: apiErr.Message, Fix: apiErr.Fix})
		case err != nil:
			res.Problems = append(res.Problems, api.Problem{Object: k.String(), Message: err.Error()})
		default:
			res.Results = append(res.Results, api.ObjectResult{Key: k, Action: api.Deleted})
			gone = append(gone, pods...)
		}
	}
	u.state.kick()
	return res, gone
}

func (u *userObjects) deleteOne(k api.Key, r api.DeleteRequest) ([]*pod, error) {
	k = inKind(k)
	switch {
	case k.Kind == "Node":
		return nil, errors.New("nodes live as long as the mesh; end it with `lateen down`")
	case k.Kind == "Namespace" && slices.Contains(systemNamespaces, k.Name):
		return nil, errors.New("this namespace is part of every mesh and cannot be deleted")
	case k.Kind == "Pod" && u.state.nodes.ofProxyPod(k.Namespace, k.Name) != nil:
		return nil, fmt.Errorf("this pod is the proxy of node %s and lives as long as its node; it was not deleted", u.state.nodes.ofProxyPod(k.Namespace, k.Name).name)
	case k.Kind == "Pod":
		for _, p := range u.state.pods {
			if p.id.namespace == k.Namespace && p.id.name == k.Name {
				if !r.DryRun {
					delete(u.state.store.objects, model.Key{Kind: "Pod", Namespace: k.Namespace, Name: k.Name})
					p.stopWithin(r.GraceSeconds)
				}
				return []*pod{p}, nil
			}
		}
	}
	o, err := u.state.store.only(k)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, notFound(k)
	}
	if r.DryRun {
		return nil, nil
	}
	doomed := []model.Key{o.Key}
	if k.Kind == "Namespace" {
		doomed = append(u.state.store.inNamespace(k.Name), o.Key)
	}
	if k.Kind == "Gateway" {
		doomed = append(u.state.madeFor(o.Key), o.Key)
	}
	var gone []*pod
	for _, key := range doomed {
		for _, p := range u.state.pods {
			if p.id.owner == key {
				p.stopWithin(r.GraceSeconds)
				gone = append(gone, p)
			}
		}
		if err := u.state.store.remove(key); err != nil {
			return gone, err
		}
		delete(u.state.made, key)
		u.changed(key)
	}
	return gone, nil
}
