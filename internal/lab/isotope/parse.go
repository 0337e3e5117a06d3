package isotope

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Bounds of what is read.
const (
	maxServices = 10_000
	maxReplicas = 1_000
	maxPolicies = 10_000
	maxCommands = 10_000 // of one service
	maxText     = 16 << 20
)

var (
	nameText  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	labelText = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
	labelName = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	headerKey = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$")
	hostText  = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?$`)
)

// fields are those of an object that are not read yet; what is left in the end nobody knows.
type fields map[string]json.RawMessage

// object reads the fields of an object.
func object(raw json.RawMessage) (fields, error) {
	var f fields
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("%s is no map of fields", shown(raw))
	}
	return f, nil
}

// take hands a field out once; what is null counts as left out.
func (f fields) take(name string) (json.RawMessage, bool) {
	raw, ok := f[name]
	delete(f, name)
	return raw, ok && string(raw) != "null"
}

// done refuses what is left over.
func (f fields) done(known string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s: there is no such field; known are %s", slices.Min(slices.Collect(maps.Keys(f))), known)
}

// read hands a field to a reader and puts the field's name in front of its complaint.
func read[T any](f fields, name string, into *T, reader func(json.RawMessage) (T, error)) error {
	raw, ok := f.take(name)
	if !ok {
		return nil
	}
	v, err := reader(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*into = v
	return nil
}

// defaults are what services and calls leave out.
type defaults struct {
	service     Service
	requestSize int64
}

// Parse reads a topology. Whatever isotope would take is taken as it is, except where Kubernetes or the service would stumble over
// it later: each refusal names the service, the field and a fix.
func Parse(text []byte) (*Topology, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("topology: %d bytes are more than 16 MiB", len(text))
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return t, nil
}

func parse(raw json.RawMessage) (*Topology, error) {
	f, err := object(raw)
	if err != nil {
		return nil, err
	}
	f.take("apiVersion") // what it says has no meaning to isotope either
	if raw, ok := f.take("kind"); ok && string(raw) != `"MockServiceGraph"` {
		return nil, fmt.Errorf("kind: %s is no MockServiceGraph: leave it out or write that", shown(raw))
	}
	d := defaults{service: Service{Type: TypeHTTP, Replicas: 1}}
	given, there := f.take("defaults")
	// isotope's documentation has it in the singular, its program in the plural.
	if other, both := f.take("default"); both {
		if there {
			return nil, errors.New("default and defaults: both are given; keep defaults")
		}
		given, there = other, true
	}
	if there {
		if d, err = parseDefaults(given, d); err != nil {
			return nil, fmt.Errorf("defaults: %w", err)
		}
	}
	t := &Topology{}
	list, ok := f.take("services")
	if !ok {
		return nil, errors.New("services: there are none; name at least one")
	}
	if err := f.done("apiVersion, kind, defaults and services"); err != nil {
		return nil, err
	}
	var services []json.RawMessage
	if json.Unmarshal(list, &services) != nil || len(services) == 0 || len(services) > maxServices {
		return nil, fmt.Errorf("services: write a list of 1 to %d services", maxServices)
	}
	seen := map[string]bool{}
	for i, raw := range services {
		s, err := parseService(raw, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", called(raw, i), err)
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("service %s: name: it stands twice, and calls know services by their names alone; give one another name", s.Name)
		}
		seen[s.Name] = true
		t.Services = append(t.Services, s)
	}
	for i := range t.Services {
		for _, c := range t.Services[i].calls() {
			if !seen[c.Service] {
				return nil, fmt.Errorf("service %s: script: it calls %q, which is no service of the topology; add it to services or correct the name", t.Services[i].Name, c.Service)
			}
		}
	}
	return t, nil
}

// called names a service for an error, by its place where it has no name.
func called(raw json.RawMessage, i int) string {
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &named) == nil && nameText.MatchString(named.Name) {
		return "service " + named.Name
	}
	return fmt.Sprintf("services[%d]", i)
}

func parseDefaults(raw json.RawMessage, d defaults) (defaults, error) {
	f, err := object(raw)
	if err != nil {
		return d, err
	}
	if err := read(f, "requestSize", &d.requestSize, size); err != nil {
		return d, err
	}
	if err := shared(f, &d.service, d.requestSize); err != nil {
		return d, err
	}
	return d, f.done("type, errorRate, requestSize, responseSize, script, numReplicas and numRbacPolicies")
}

// shared reads the fields that services have and defaults may give.
func shared(f fields, s *Service, requestSize int64) error {
	for _, unused := range []string{"computeUsage", "memoryUsage"} {
		f.take(unused) // isotope's documentation names them; neither its program nor this one acts on them
	}
	return cmp.Or(
		read(f, "type", &s.Type, serviceType),
		read(f, "errorRate", &s.ErrorRate, percentage),
		read(f, "responseSize", &s.ResponseSize, size),
		read(f, "numReplicas", &s.Replicas, func(raw json.RawMessage) (int, error) { return whole(raw, 0, maxReplicas) }),
		read(f, "numRbacPolicies", &s.RbacPolicies, func(raw json.RawMessage) (int, error) { return whole(raw, 0, maxPolicies) }),
		read(f, "script", &s.Script, func(raw json.RawMessage) ([]Step, error) { return parseScript(raw, requestSize) }),
	)
}

func serviceType(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) != nil || text != TypeHTTP && text != TypeGRPC {
		return "", fmt.Errorf("%s: use http or grpc", shown(raw))
	}
	return text, nil
}

func parseService(raw json.RawMessage, d defaults) (Service, error) {
	s := d.service
	f, err := object(raw)
	if err != nil {
		return s, err
	}
	named := func(raw json.RawMessage) (string, error) {
		var text string
		if json.Unmarshal(raw, &text) != nil || !nameText.MatchString(text) {
			return "", fmt.Errorf("%s: use up to 63 lower-case letters, digits and dashes, no dash first or last", shown(raw))
		}
		return text, nil
	}
	err = cmp.Or(
		read(f, "name", &s.Name, named),
		read(f, "namespace", &s.Namespace, named),
		read(f, "cluster", &s.Cluster, named),
		read(f, "isEntrypoint", &s.Entrypoint, func(raw json.RawMessage) (b bool, err error) {
			if json.Unmarshal(raw, &b) != nil {
				err = fmt.Errorf("%s: use true or false", shown(raw))
			}
			return b, err
		}),
		read(f, "labels", &s.Labels, parseLabels),
		shared(f, &s, d.requestSize),
	)
	if err == nil && s.Name == "" {
		err = errors.New("name: it is missing; calls and Kubernetes need one")
	}
	if err == nil {
		err = f.done("name, namespace, cluster, type, numReplicas, numRbacPolicies, isEntrypoint, errorRate, responseSize, script and labels")
	}
	return s, err
}

func parseLabels(raw json.RawMessage) (map[string]string, error) {
	var labels map[string]string
	if json.Unmarshal(raw, &labels) != nil {
		return nil, fmt.Errorf("%s: write strings under names; quote numbers", shown(raw))
	}
	for name, value := range labels {
		if !labelName.MatchString(name) || !labelText.MatchString(value) {
			return nil, fmt.Errorf("%q: %q is no label of Kubernetes: use letters, digits, dashes, dots and underscores, at most 63", name, value)
		}
	}
	return labels, nil
}

func parseScript(raw json.RawMessage, requestSize int64) ([]Step, error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%s: write a list of steps", shown(raw))
	}
	steps, commands := []Step{}, 0
	for i, raw := range list {
		step := Step{}
		together := []json.RawMessage{raw}
		if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
			step.Concurrent = true
			if err := json.Unmarshal(raw, &together); err != nil {
				return nil, fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		if commands += len(together); commands > maxCommands {
			return nil, fmt.Errorf("more than %d commands; use several services", maxCommands)
		}
		for _, raw := range together {
			c, err := parseCommand(raw, requestSize)
			if err != nil {
				return nil, fmt.Errorf("step %d: %w", i+1, err)
			}
			step.Commands = append(step.Commands, c)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func parseCommand(raw json.RawMessage, requestSize int64) (Command, error) {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return Command{}, errors.New("a list stands within a list of commands that run at the same time; there is one level only: write it as a step of its own, or in another service")
	}
	f, err := object(raw)
	if err != nil || len(f) != 1 {
		return Command{}, fmt.Errorf("%s is no command: write one of sleep and call", shown(raw))
	}
	var c Command
	if raw, ok := f.take("sleep"); ok {
		if c.Sleep, err = duration(raw); err != nil {
			return c, fmt.Errorf("sleep: %w", err)
		}
		return c, nil
	}
	if raw, ok := f.take("call"); ok {
		if c.Call, err = parseCall(raw, requestSize); err != nil {
			return c, fmt.Errorf("call: %w", err)
		}
		return c, nil
	}
	if err := f.done("sleep and call"); err != nil {
		return c, err
	}
	return c, fmt.Errorf("%s: the command has nothing to do; write a time or a service behind it", shown(raw))
}

func parseCall(raw json.RawMessage, requestSize int64) (*Call, error) {
	c := &Call{Size: requestSize}
	text := func(raw json.RawMessage) (s string, err error) {
		if json.Unmarshal(raw, &s) != nil || s == "" {
			err = fmt.Errorf("%s: write a name", shown(raw))
		}
		return s, err
	}
	if raw[0] == '"' {
		var err error
		if c.Service, err = text(raw); err != nil {
			return nil, err
		}
		c.Host = c.Service + ":8080"
		return c, nil
	}
	f, err := object(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: write a service, or its fields", shown(raw))
	}
	_, twice := f["payloadSize"]
	if _, ok := f["size"]; ok && twice {
		return nil, errors.New("size and payloadSize: both are given; keep size")
	}
	err = cmp.Or(
		read(f, "service", &c.Service, text),
		read(f, "hostname", &c.Host, func(raw json.RawMessage) (string, error) {
			s, err := text(raw)
			if err == nil && !hostText.MatchString(s) {
				err = fmt.Errorf("%s is no host: write a name and a port, such as b.other.svc.cluster.local:8080", shown(raw))
			}
			return s, err
		}),
		read(f, "extra-header", &c.Headers, parseHeaders),
		read(f, "size", &c.Size, size),
		read(f, "payloadSize", &c.Size, size),
		read(f, "probability", &c.Probability, func(raw json.RawMessage) (int, error) { return whole(raw, 0, 100) }),
	)
	switch {
	case err != nil:
		return nil, err
	case c.Service == "":
		return nil, errors.New("service: it is missing; name the service that is called, also where hostname says how to reach it")
	case c.Host == "":
		c.Host = c.Service + ":8080"
	}
	return c, f.done("service, hostname, extra-header, size, payloadSize and probability")
}

func parseHeaders(raw json.RawMessage) (map[string]string, error) {
	var headers map[string]string
	if json.Unmarshal(raw, &headers) != nil {
		return nil, fmt.Errorf("%s: write strings under names; quote numbers", shown(raw))
	}
	for name, value := range headers {
		if !headerKey.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("%q: %q is no header of HTTP", name, value)
		}
	}
	return headers, nil
}
