package isotope

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ManifestOptions are what a topology does not say about its pods.
type ManifestOptions struct {
	// Cluster leaves out the services of all other clusters; empty takes everything.
	Cluster string
	// Image is the container's; the local engine runs Command from the host instead.
	Image string
	// Command starts the service.
	Command []string
	// Replicas, if not 0, overrides what services say.
	Replicas int
}

// DefaultManifestOptions run the service that is part of the lateen program.
var DefaultManifestOptions = ManifestOptions{Image: "lateen/lateen:1", Command: []string{"lateen", "lab", "service"}}

const (
	servicePort   = 8080 // every service listens there
	containerName = "mock-service"
	portName      = "http-web"
)

// entry is a map of an object.
type entry = map[string]any

// Manifests writes Kubernetes objects that act the topology out: for each service an identity, a Deployment and a Service, and
// where the topology asks for them authorization policies. They name no files and no config maps: each pod finds its part of the
// topology in its environment, so they are applied anywhere as they are.
func (t *Topology) Manifests(w io.Writer, o ManifestOptions) error {
	if circle := t.Endless(); len(circle) > 0 {
		return fmt.Errorf("service %s: script: a request would go round for ever: %s; give one of the calls a probability below 100 or one of the services an errorRate",
			circle[0], strings.Join(circle, " -> "))
	}
	var out bytes.Buffer
	add := func(o entry) error {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
		return nil
	}
	namespaces, found := map[string]bool{}, 0
	for i := range t.Services {
		s := &t.Services[i]
		if o.Cluster != "" && s.Cluster != o.Cluster {
			continue
		}
		found++
		if s.Namespace != "" && s.Namespace != "default" && !namespaces[s.Namespace] {
			namespaces[s.Namespace] = true
			if err := add(entry{"apiVersion": "v1", "kind": "Namespace", "metadata": entry{"name": s.Namespace}}); err != nil {
				return err
			}
		}
		objects, err := t.objects(s, o)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := add(object); err != nil {
				return err
			}
		}
	}
	if found == 0 {
		return fmt.Errorf("cluster %q: no service of the topology is in it: use one of %s", o.Cluster, strings.Join(t.clusters(), ", "))
	}
	_, err := out.WriteTo(w)
	return err
}

func (t *Topology) clusters() []string {
	names := map[string]bool{}
	for i := range t.Services {
		if c := t.Services[i].Cluster; c != "" {
			names[c] = true
		}
	}
	if len(names) == 0 {
		return []string{"none: leave the cluster out"}
	}
	return slices.Sorted(maps.Keys(names))
}

func (t *Topology) objects(s *Service, o ManifestOptions) ([]entry, error) {
	part, err := t.part(s).Marshal()
	if err != nil {
		return nil, err
	}
	metadata := func(name string) entry {
		labels := entry{}
		for k, v := range s.Labels {
			labels[k] = v
		}
		labels["app"], labels["role"] = s.Name, "service"
		m := entry{"name": name, "labels": labels}
		if s.Namespace != "" {
			m["namespace"] = s.Namespace
		}
		return m
	}
	replicas := s.Replicas
	if o.Replicas != 0 {
		replicas = o.Replicas
	}
	pod := metadata(s.Name)
	delete(pod, "name")
	delete(pod, "namespace")
	pod["labels"].(entry)["name"] = s.Name // what isotope's own selectors go by
	pod["annotations"] = entry{"prometheus.io/scrape": "true", "prometheus.io/port": fmt.Sprint(servicePort)}
	list := []entry{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(s.Name)},
		{"apiVersion": "v1", "kind": "Service", "metadata": metadata(s.Name), "spec": entry{
			"selector": entry{"name": s.Name}, "ports": []entry{{"name": portName, "port": servicePort}},
		}},
		{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(s.Name), "spec": entry{
			"replicas": replicas, "selector": entry{"matchLabels": entry{"name": s.Name}},
			"template": entry{"metadata": pod, "spec": entry{
				"serviceAccountName": s.Name, "terminationGracePeriodSeconds": 2,
				"containers": []entry{{
					"name": containerName, "image": o.Image, "command": o.Command,
					"env":            []entry{{"name": NameVariable, "value": s.Name}, {"name": GraphVariable, "value": strings.ReplaceAll(string(part), "$", "$$")}},
					"ports":          []entry{{"containerPort": servicePort, "name": portName}},
					"readinessProbe": entry{"httpGet": entry{"path": healthPath, "port": servicePort}, "periodSeconds": 5},
				}},
			}},
		}},
	}
	for i := 1; i <= s.RbacPolicies; i++ {
		// All but the last admit somebody who does not exist.
		rule := entry{"from": []entry{{"source": entry{"principals": []string{fmt.Sprintf("cluster.local/ns/nowhere/sa/nobody-%d", i)}}}}}
		if i == s.RbacPolicies {
			rule = entry{}
		}
		list = append(list, entry{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": metadata(fmt.Sprintf("%s-%d", s.Name, i)), "spec": entry{
			"selector": entry{"matchLabels": entry{"name": s.Name}}, "action": "ALLOW", "rules": []entry{rule},
		}})
	}
	return list, nil
}
