package compile

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// feedServiceSlices keeps which slices a Service has whose pods do not say themselves what they say.
func feedServiceSlices(x *sourceIndex, ch model.Changed) {
	of := func(o *model.Object) (model.Key, bool) {
		slice, ok := valueOf[*discoveryv1.EndpointSlice](o)
		if !ok {
			return model.Key{}, false
		}
		return translate.SliceService(slice)
	}
	if svc, ok := of(ch.Old); ok {
		if delete(x.slices[svc], ch.Key); len(x.slices[svc]) == 0 {
			delete(x.slices, svc)
		}
	}
	if svc, ok := of(ch.New); ok {
		if x.slices[svc] == nil {
			x.slices[svc] = map[model.Key]bool{}
		}
		x.slices[svc][ch.Key] = true
	}
}

// feedSlicePods keeps which slices name a pod.
func feedSlicePods(x *sourceIndex, ch model.Changed) {
	if old, ok := valueOf[*discoveryv1.EndpointSlice](ch.Old); ok {
		for pod := range translate.SlicePods(old) {
			if delete(x.slicesOf[pod], ch.Key); len(x.slicesOf[pod]) == 0 {
				delete(x.slicesOf, pod)
			}
		}
	}
	if now, ok := valueOf[*discoveryv1.EndpointSlice](ch.New); ok {
		for pod, places := range translate.SlicePods(now) {
			if x.slicesOf[pod] == nil {
				x.slicesOf[pod] = map[model.Key][]int{}
			}
			x.slicesOf[pod][ch.Key] = places
		}
	}
}

// podsOfSlice are the pods that a slice names or named and that are there.
func podsOfSlice(x *sourceIndex, ch model.Changed, stale marker) {
	for _, o := range [...]*model.Object{ch.Old, ch.New} {
		if slice, ok := valueOf[*discoveryv1.EndpointSlice](o); ok {
			x.markPods(slice, stale)
		}
	}
}

func (x *sourceIndex) markPods(slice *discoveryv1.EndpointSlice, stale marker) {
	for pod := range translate.SlicePods(slice) {
		if _, ok := x.store.Pod(pod); ok {
			stale.mark(pod)
		}
	}
}

// slicesOfPod are the slices that name a pod.
func slicesOfPod(x *sourceIndex, ch model.Changed, stale marker) {
	for slice := range x.slicesOf[ch.Key] {
		stale.mark(slice)
	}
}

// slicesOfService are a Service's slices, for their endpoints, and the pods that they name.
func slicesOfService(x *sourceIndex, ch model.Changed, stale marker) {
	for key := range x.slices[ch.Key] {
		stale.mark(key)
		if slice, ok := x.store.EndpointSlice(key); ok {
			x.markPods(slice, stale)
		}
	}
}

// sliced lists the Services that a pod serves because slices name it, and what it offers by each slice, in the order of the slices.
func (x *sourceIndex) sliced(key model.Key) iter.Seq2[model.Key, translate.Offer] {
	return func(yield func(model.Key, translate.Offer) bool) {
		named := x.slicesOf[key]
		pod, ok := x.store.Pod(key)
		if !ok || len(named) == 0 {
			return
		}
		for _, sliceKey := range slices.SortedFunc(maps.Keys(named), model.Key.Compare) {
			slice, ok := x.store.EndpointSlice(sliceKey)
			if !ok {
				continue
			}
			of, _ := translate.SliceService(slice)
			svc, ok := x.store.Service(of)
			if !ok {
				continue
			}
			if offer, ok := translate.SliceOffer(x.mesh, slice, named[sliceKey], svc, pod); ok && !yield(of, offer) {
				return
			}
		}
	}
}

// sliceOffers adds to what a pod offers by selectors what it offers by slices that name it.
func (x *sourceIndex) sliceOffers(key model.Key, offers []translate.Offer) []translate.Offer {
	if len(x.slicesOf[key]) == 0 {
		return offers // as nearly all pods
	}
	selected, at := len(offers), map[string]int{}
	for i, o := range slices.Backward(offers) {
		at[o.Host] = i
	}
	for _, offer := range x.sliced(key) {
		// A Service that selects the pod has said all; of its further slices, one of each family, each adds what is its own.
		switch i, known := at[offer.Host]; {
		case !known:
			at[offer.Host] = len(offers)
			offers = append(offers, offer)
		case i >= selected:
			offers[i].Join(offer)
		}
	}
	return offers
}

// compileSlice brings the endpoints of a slice up to date.
func (c *workloadCompiler) compileSlice(b *batch, key model.Key) {
	now := map[string]bool{}
	if slice, ok := c.store.EndpointSlice(key); ok {
		of, _ := translate.SliceService(slice)
		svc, _ := c.store.Service(of)
		workloads, conditions := translate.EndpointSlice(c.mesh, slice, svc, func(name string) *corev1.Pod {
			pod, _ := c.store.Pod(model.PodKey(key.Namespace, name))
			return pod
		})
		c.out.conditions(b, key, conditions)
		for _, w := range workloads {
			now[w.Uid] = true
			// Nobody finds it by its address.
			c.out.emit(b, resourcekind.Address, w.Uid, nil, slices.Sorted(maps.Keys(w.Services)), &workload.Address{Type: &workload.Address_Workload{Workload: w}}, key)
		}
	}
	c.replaceEndpoints(b, key, now)
}

// replaceEndpoints takes those workloads of an object out of the log that it has no more.
func (c *workloadCompiler) replaceEndpoints(b *batch, key model.Key, now map[string]bool) {
	for name := range c.endpoints[key] {
		if !now[name] {
			b.remove(resourcekind.Address, name)
			c.ties.drop(name)
		}
	}
	if len(now) == 0 {
		delete(c.endpoints, key)
	} else {
		c.endpoints[key] = now
	}
}
