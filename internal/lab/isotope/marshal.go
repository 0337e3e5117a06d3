package isotope

import "sigs.k8s.io/yaml"

// Marshal writes the topology as YAML that Parse, and isotope, read; every default is spelt out.
func (t *Topology) Marshal() ([]byte, error) {
	services := []map[string]any{}
	for i := range t.Services {
		s := &t.Services[i]
		fields := map[string]any{"name": s.Name, "type": s.Type, "numReplicas": s.Replicas}
		set(fields, "namespace", s.Namespace)
		set(fields, "cluster", s.Cluster)
		set(fields, "numRbacPolicies", s.RbacPolicies)
		set(fields, "isEntrypoint", s.Entrypoint)
		set(fields, "errorRate", s.ErrorRate)
		set(fields, "responseSize", s.ResponseSize)
		if len(s.Labels) > 0 {
			fields["labels"] = s.Labels
		}
		if len(s.Script) > 0 {
			script := []any{}
			for _, step := range s.Script {
				script = append(script, step.fields())
			}
			fields["script"] = script
		}
		services = append(services, fields)
	}
	return yaml.Marshal(map[string]any{"services": services})
}

// set leaves out what is a field's zero value anyway.
func set[T comparable](fields map[string]any, name string, value T) {
	var zero T
	if value != zero {
		fields[name] = value
	}
}

func (s Step) fields() any {
	commands := []any{}
	for _, c := range s.Commands {
		commands = append(commands, c.fields())
	}
	if s.Concurrent || len(commands) != 1 {
		return commands
	}
	return commands[0]
}

func (c Command) fields() any {
	if c.Call == nil {
		return map[string]any{"sleep": c.Sleep.String()}
	}
	fields := map[string]any{"service": c.Call.Service, "hostname": c.Call.Host}
	set(fields, "size", c.Call.Size)
	set(fields, "probability", c.Call.Probability)
	if len(c.Call.Headers) > 0 {
		fields["extra-header"] = c.Call.Headers
	}
	return map[string]any{"call": fields}
}

// part is what one service needs to know of the topology: itself, and that those it calls exist.
func (t *Topology) part(s *Service) *Topology {
	p := &Topology{Services: []Service{*s}}
	seen := map[string]bool{s.Name: true}
	for _, c := range s.calls() {
		if !seen[c.Service] {
			seen[c.Service] = true
			p.Services = append(p.Services, Service{Name: c.Service, Type: TypeHTTP, Replicas: 1})
		}
	}
	return p
}
