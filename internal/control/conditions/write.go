package conditions

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model"
)

// Results of an attempt to write.
const (
	resultWritten   = "written"
	resultUnchanged = "unchanged" // the status said so already
	resultGone      = "gone"      // the object is
	resultConflict  = "conflict"  // somebody else wrote meanwhile, or the object is another by now
	resultRefused   = "refused"   // for all of its kind: the rights are missing, or the kind has no status, or another one
	resultAway      = "away"      // the API server is
)

// write reads an object's status and writes what is wanted into it.
func (w *Writer) write(ctx context.Context, key model.Key, gvr schema.GroupVersionResource) (result string, err error) {
	ctx, cancel := context.WithTimeout(kube.Quiet(ctx), requestTimeout)
	defer cancel()
	objects := w.Client.Resource(gvr).Namespace(key.Namespace)
	u, err := objects.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return resultGone, nil
	}
	if err != nil {
		return failure(err), err
	}
	types := owned(key)
	present := read(u, types, w.Controllers)
	want, exists := w.want(key, present)
	switch {
	case !exists && w.givesUp(key, present):
		if !w.believes(key, u) {
			return resultConflict, nil // what it is now has not come yet
		}
		return w.giveUp(ctx, key, objects, u)
	case !exists:
		return resultGone, nil
	case want.uid != "" && want.uid != present.uid, stale(want, u.GetGeneration()):
		return resultConflict, nil // what it is now has not come yet
	}
	if present.says(want) {
		w.keep(key, present, time.Time{})
		return resultUnchanged, nil
	}
	at := w.Now().UTC().Format(time.RFC3339)
	conditions := since(want.conditions, present.conditions, at)
	parentsSince(want.parents, present.parents, at)
	want.gateway.since(present.gateway, at)
	data, err := patch(u, types, w.Controllers, conditions, want.parents, want.gateway)
	if err != nil {
		return resultRefused, err
	}
	_, err = objects.Patch(ctx, key.Name, mergePatch, data, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil {
		return failure(err), err
	}
	is := written{uid: present.uid, conditions: conditions, parents: want.parents, gateway: present.gateway}
	if want.gateway != nil {
		is.gateway = want.gateway
	}
	w.keep(key, is, w.Now())
	return resultWritten, nil
}

// giveUp takes out of a Gateway's status what this mesh alone has written there.
func (w *Writer) giveUp(ctx context.Context, key model.Key, objects dynamic.ResourceInterface, u *unstructured.Unstructured) (result string, err error) {
	data, err := withdraw.Gateway(u)
	switch {
	case err != nil:
		return resultRefused, err
	case data == nil:
		w.gave(key)
		return resultUnchanged, nil
	}
	if _, err = objects.Patch(ctx, u.GetName(), mergePatch, data, metav1.PatchOptions{FieldManager: fieldManager}, "status"); err != nil {
		return failure(err), err
	}
	w.gave(key)
	return resultWritten, nil
}

// gave takes note that nothing of this mesh is left in a Gateway's status.
func (w *Writer) gave(key model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.given[key] = true
	}
}

const mergePatch = types.MergePatchType

// stale says whether what is wanted is about another generation than the present one.
func stale(want wanted, generation int64) bool {
	other := func(c Condition) bool { return c.Generation > 0 && c.Generation != generation }
	return slices.ContainsFunc(want.conditions, other) ||
		slices.ContainsFunc(want.parents, func(p parent) bool { return slices.ContainsFunc(p.conditions, other) })
}

func failure(err error) string {
	switch {
	case apierrors.IsConflict(err):
		return resultConflict
	case kube.Away(err):
		return resultAway
	}
	return resultRefused
}

func (w *Writer) keep(key model.Key, is written, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	w.written[key] = is
	delete(w.given, key)
	if !at.IsZero() {
		w.at[key] = at
	}
}

// heard takes note of how a request about an object of a kind ended, or one about all of them, for which the key is empty. It says how long
// what failed waits if that was not its own fault. Each reason is told once, and that it is over.
func (w *Writer) heard(of schema.GroupResource, key model.Key, result string, err error) (again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.troubles[of]
	if result != resultAway && result != resultRefused {
		if t == nil || result == resultConflict {
			return 0
		}
		if t.over(key, true) {
			w.Logger.Info("conditions: the status of "+of.String()+" can be written again", "resource", of.String())
		}
		told := t.told
		if delete(w.troubles, of); len(told) > 0 {
			w.troubles[of] = newTrouble()
			w.troubles[of].told = told
		}
		return 0
	}
	if w.queue == nil {
		return 0
	}
	if t == nil {
		t = newTrouble()
		w.troubles[of] = t
	}
	// What one object's status says of that object, whatever is wrong with the others.
	invalid := apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	whole := false
	if !invalid {
		if key != (model.Key{}) {
			t.failing[whose(key)] = true
		}
		whole = key == model.Key{} || unreachable(err) || len(t.failing) >= several
		t.whole = whole
	}
	reason := reasonOf(of, result, err)
	if _, said := t.told[cause{reason, whole}]; !said {
		if len(t.told) >= mostTold {
			clear(t.told)
		}
		t.told[cause{reason, whole}] = key
		what := "the status of " + of.String()
		if !whole {
			what = "the status of an object of " + of.String()
		}
		w.Logger.Warn("conditions: "+what+" cannot be written; it is tried again, and nothing else depends on it", "resource", of.String(), "object", key.String(), "reason", reason, "error", kube.Cause(err))
	}
	if !whole {
		return 0
	}
	t.unreachable = unreachable(err) || key == model.Key{}
	if now := w.Now(); !now.Before(t.until) { // else another one failed at the same time
		t.until = now.Add(t.backoff())
	}
	return max(w.pause(of, key), time.Millisecond)
}

// several is of how many namespaces objects must fail in a row for the kind to be at fault: what one tenant writes, and nobody can write a
// status into, is that tenant's trouble.
const several = 3

// whose is to whom an object belongs.
func whose(key model.Key) string {
	if key.Namespace == "" {
		return "/" + key.Name
	}
	return key.Namespace
}

// unreachable says whether an error is one that no object can be the cause of. A server that does not answer in time may work on the object.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	return kube.Away(err) && !errors.As(err, &status) && !errors.Is(err, context.DeadlineExceeded)
}

// reasonOf says why, and what fixes it.
func reasonOf(of schema.GroupResource, result string, err error) string {
	status := of.Resource + "/status"
	switch {
	case unreachable(err):
		return "the API server does not answer"
	case result == resultAway:
		return "the API server is not able to"
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return "the API server serves no " + status + ": the definition of the kind is of another version; upgrade the chart lateen-crds"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "the kind's definition does not admit the conditions, so it is of another version; upgrade the chart lateen-crds"
	}
	if text := kube.Refusal(err, of.Group, status, "patch"); text != "" {
		return text
	}
	return kube.Cause(err)
}

// reviewPage is how many objects one answer holds.
const reviewPage = 500

// review reads what is written in all objects, and has those looked at that are to say something else; false if ctx ended first.
func (w *Writer) review(ctx context.Context) bool {
	ctx = kube.Quiet(ctx)
	for _, k := range withdraw.Kinds {
		kind := model.Key{Group: k.Group, Kind: k.Name}
		gvr, served := w.Cluster.Resource(kind.Group, kind.Kind)
		if served && !w.reviewKind(ctx, kind, gvr) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (w *Writer) reviewKind(ctx context.Context, kind model.Key, gvr schema.GroupVersionResource) bool {
	next := ""
	for {
		page, err := w.Client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: reviewPage, Continue: next})
		switch {
		case ctx.Err() != nil:
			return false
		case apierrors.IsNotFound(err):
			return true
		case apierrors.IsResourceExpired(err):
			next = ""
			continue
		case err != nil:
			result := failure(err)
			pause := w.heard(gvr.GroupResource(), model.Key{}, result, err)
			if result == resultRefused {
				return true // each object is read before it is written in any case
			}
			if !kube.Sleep(ctx, max(pause, time.Second)) {
				return false
			}
			continue
		}
		for i := range page.Items {
			w.reviewed(kind, &page.Items[i])
		}
		if next = page.GetContinue(); next == "" {
			return true
		}
	}
}

func (w *Writer) reviewed(kind model.Key, u *unstructured.Unstructured) {
	key := model.Key{Group: kind.Group, Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()}
	is := read(u, owned(key), w.Controllers)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	if len(is.conditions)+len(is.parents) > 0 || is.gateway != nil {
		w.written[key] = is
	} else {
		delete(w.written, key)
	}
	w.put(key, settleTime)
}

// clip cuts a message at a whole character.
func clip(message string) string { return clipTo(message, maxMessage) }

func clipTo(message string, most int) string {
	if len(message) <= most {
		return message
	}
	end := most - len("…")
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}
