package compile

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// touchSlice looks at a slice whose Service's pods do not say themselves what it says, and keeps in mind whose it is.
func (c *Compiler) touchSlice(b *batch, ch model.Changed) {
	if ch.New != nil && ch.New.Support != model.Implemented {
		c.conditions(b, ch.Key, []model.Condition{translate.NotImplemented(ch.Key.Kind, ch.New.Reason)})
		return
	}
	of := func(o *model.Object) (model.Key, bool) {
		slice, ok := valueOf[*discoveryv1.EndpointSlice](o)
		if !ok {
			return model.Key{}, false
		}
		return translate.SliceService(slice)
	}
	if svc, ok := of(ch.Old); ok {
		if delete(c.slices[svc], ch.Key); len(c.slices[svc]) == 0 {
			delete(c.slices, svc)
		}
	}
	if svc, ok := of(ch.New); ok {
		if c.slices[svc] == nil {
			c.slices[svc] = map[model.Key]bool{}
		}
		c.slices[svc][ch.Key] = true
	}
	b.workload(ch.Key)
}

// compileSlice brings the endpoints of a slice up to date.
func (c *Compiler) compileSlice(b *batch, key model.Key) {
	now := map[string]bool{}
	if slice, ok := c.store.EndpointSlice(key); ok {
		of, _ := translate.SliceService(slice)
		svc, _ := c.store.Service(of)
		workloads, conditions := translate.EndpointSlice(c.mesh, slice, svc)
		c.conditions(b, key, conditions)
		for _, w := range workloads {
			now[w.Uid] = true
			// Nobody finds it by its address.
			c.emit(b, log.AddressType, w.Uid, nil, slices.Sorted(maps.Keys(w.Services)), &workload.Address{Type: &workload.Address_Workload{Workload: w}}, key)
		}
	}
	c.replaceEndpoints(b, key, now)
}

// replaceEndpoints takes those workloads of an object out of the log that it has no more.
func (c *Compiler) replaceEndpoints(b *batch, key model.Key, now map[string]bool) {
	for name := range c.endpoints[key] {
		if !now[name] {
			b.remove(log.AddressType, name)
		}
	}
	if len(now) == 0 {
		delete(c.endpoints, key)
	} else {
		c.endpoints[key] = now
	}
}
