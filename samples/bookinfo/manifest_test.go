package bookinfo_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	security "istio.io/client-go/pkg/apis/security/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// failing runs a service that is expected to refuse its settings.
func failing(t *testing.T, command []string, settings ...string) (string, error) {
	t.Helper()
	need(t, command[0])
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Env = append(append(os.Environ(), "PORT="+freePort(t)), settings...)
	output, err := process.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("%v with %v goes on running", command, settings)
	}
	return string(output), err
}

type objects struct {
	accounts    map[string]bool
	services    map[string]core.Service
	deployments map[string]apps.Deployment
	policies    []security.AuthorizationPolicy
	peers       []security.PeerAuthentication
	gateways    []gateway.Gateway
}

// load decodes every document of a file strictly.
func load(t *testing.T, files ...string) objects {
	t.Helper()
	found := objects{accounts: map[string]bool{}, services: map[string]core.Service{}, deployments: map[string]apps.Deployment{}}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(data, []byte("\n---\n")) {
			var head struct{ Kind string }
			if err := yaml.Unmarshal(document, &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			switch head.Kind {
			case "ServiceAccount":
				account := strict[core.ServiceAccount](t, file, document)
				found.accounts[account.Name] = true
			case "Service":
				service := strict[core.Service](t, file, document)
				found.services[service.Name] = service
			case "Deployment":
				deployment := strict[apps.Deployment](t, file, document)
				found.deployments[deployment.Name] = deployment
			case "AuthorizationPolicy":
				found.policies = append(found.policies, strict[security.AuthorizationPolicy](t, file, document))
			case "PeerAuthentication":
				found.peers = append(found.peers, strict[security.PeerAuthentication](t, file, document))
			case "Gateway":
				found.gateways = append(found.gateways, strict[gateway.Gateway](t, file, document))
			default:
				t.Errorf("%s: unexpected kind %q", file, head.Kind)
			}
		}
	}
	return found
}

func strict[T any](t *testing.T, file string, document []byte) T {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		t.Errorf("%s: %v\n%s", file, err, document)
	}
	return object
}

func TestManifestsFitTogether(t *testing.T) {
	for _, c := range []struct {
		file        string
		deployments int
	}{{"bookinfo.yaml", 6}, {"kubernetes/bookinfo.yaml", 6}, {"../echo/echo.yaml", 2}} {
		found := load(t, c.file)
		if len(found.deployments) != c.deployments {
			t.Errorf("%s: %d deployments, want %d", c.file, len(found.deployments), c.deployments)
		}
		for name, deployment := range found.deployments {
			template := deployment.Spec.Template
			if !found.accounts[template.Spec.ServiceAccountName] {
				t.Errorf("%s runs as %q, which does not exist", name, template.Spec.ServiceAccountName)
			}
			if !labels.SelectorFromSet(deployment.Spec.Selector.MatchLabels).Matches(labels.Set(template.Labels)) {
				t.Errorf("%s does not select its own pods", name)
			}
			for _, word := range template.Spec.Containers[0].Command {
				if script, ok := strings.CutPrefix(word, "$(LATEEN_MANIFEST_DIR)/"); ok {
					if _, err := os.Stat(filepath.Join(filepath.Dir(c.file), script)); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		}
		for name, service := range found.services {
			selected := 0
			for _, deployment := range found.deployments {
				template := deployment.Spec.Template
				if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) {
					selected++
					if template.Spec.Containers[0].Ports[0].ContainerPort != service.Spec.Ports[0].Port {
						t.Errorf("service %s and its pods differ in the port", name)
					}
				}
			}
			if selected == 0 {
				t.Errorf("service %s selects nothing", name)
			}
		}
	}
}

func TestNeighboursOnThePathRunOnDifferentNodes(t *testing.T) {
	const label = "lateen.dev/node-index"
	bookinfo, echo := load(t, "bookinfo.yaml").deployments, load(t, "../echo/echo.yaml").deployments
	node := func(deployment apps.Deployment) string { return deployment.Spec.Template.Spec.NodeSelector[label] }
	for _, pair := range [][2]apps.Deployment{
		{bookinfo["productpage-v1"], bookinfo["details-v1"]},
		{echo["client"], echo["echo"]},
	} {
		if a, b := node(pair[0]), node(pair[1]); a == "" || b == "" || a == b {
			t.Errorf("%s on node %q, %s on node %q", pair[0].Name, a, pair[1].Name, b)
		}
	}
}

func TestPoliciesNameAccountsThatExist(t *testing.T) {
	files, err := filepath.Glob("policy/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("policies: %v %v", files, err)
	}
	accounts, policies := load(t, "bookinfo.yaml").accounts, load(t, files...)
	if len(policies.policies) != 4 || len(policies.peers) != 1 {
		t.Fatalf("%d authorization policies and %d peer authentications", len(policies.policies), len(policies.peers))
	}
	for i := range policies.policies {
		policy := &policies.policies[i]
		for _, rule := range policy.Spec.Rules {
			for _, principal := range rule.From[0].Source.Principals {
				account, ok := strings.CutPrefix(principal, "cluster.local/ns/default/sa/")
				if !ok || !accounts[account] {
					t.Errorf("%s names %q, which is nobody", policy.Name, principal)
				}
			}
		}
	}
}

// A policy of a waypoint that names a service or an account wrongly admits too much or nobody.
func TestPoliciesOfTheWaypointNameServicesAndAccountsThatExist(t *testing.T) {
	bookinfo, ways := load(t, "bookinfo.yaml"), load(t, "waypoint/gateway.yaml", "waypoint/policy.yaml")
	if len(ways.gateways) != 1 || ways.gateways[0].Name != "waypoint" || ways.gateways[0].Spec.GatewayClassName != "lateen-waypoint" {
		t.Errorf("waypoints: %+v", ways.gateways)
	}
	if len(ways.policies) != 3 {
		t.Errorf("%d policies", len(ways.policies))
	}
	for i := range ways.policies {
		policy := &ways.policies[i]
		var services []string
		for _, ref := range policy.Spec.TargetRefs {
			if _, there := bookinfo.services[ref.Name]; !there || ref.Kind != "Service" || ref.Group != "" {
				t.Errorf("%s is for %v", policy.Name, ref)
			}
			services = append(services, ref.Name)
		}
		if strings.Join(services, " ") != "reviews details" {
			t.Errorf("%s is for the services %q", policy.Name, services)
		}
		for _, rule := range policy.Spec.Rules {
			for _, from := range rule.From {
				for _, principal := range append(from.Source.Principals, from.Source.NotPrincipals...) {
					if account, ok := strings.CutPrefix(principal, "cluster.local/ns/default/sa/"); !ok || !bookinfo.accounts[account] {
						t.Errorf("%s names %q, which is nobody", policy.Name, principal)
					}
				}
			}
		}
	}
}
