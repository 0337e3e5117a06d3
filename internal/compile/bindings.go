package compile

import (
	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// bindings publishes which services or workloads are to be reached through which Gateways of this mesh's proxies.
type bindings struct {
	out    *publisher
	names  map[model.Key]map[string]bool // object → names of its Bindings in the log
	holder map[string]model.Key          // name → object
}

func newBindings(out *publisher) *bindings {
	return &bindings{out: out, names: map[model.Key]map[string]bool{}, holder: map[string]model.Key{}}
}

// publish puts the Bindings of an object in the place of those that it had. Of a host that passed from one object to another the new one's
// counts, whichever of the two is compiled first.
func (x *bindings) publish(b *batch, key model.Key, now map[string]*l7.Binding) {
	for name, binding := range now {
		x.holder[name] = key
		x.out.emit(b, resourcekind.Binding, name, nil, nil, binding, key)
	}
	for name := range x.names[key] {
		if now[name] == nil && x.holder[name] == key {
			delete(x.holder, name)
			b.remove(resourcekind.Binding, name)
		}
	}
	if len(now) == 0 {
		delete(x.names, key)
		return
	}
	names := make(map[string]bool, len(now))
	for name := range now {
		names[name] = true
	}
	x.names[key] = names
}
