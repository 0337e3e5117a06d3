package bookinfo_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"lateen.dev/lateen/internal/tools/images/catalogue"
)

// workspaceVersion is the version in Cargo.toml, which all images have as their tag.
func workspaceVersion(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../Cargo.toml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^version = "([^"]+)"`).FindSubmatch(data)
	if m == nil {
		t.Fatal("Cargo.toml has no version")
	}
	return string(m[1])
}

func TestKubernetesRunsTheImagesThatAreMade(t *testing.T) {
	version, found := workspaceVersion(t), load(t, "kubernetes/bookinfo.yaml")
	for name, deployment := range found.deployments {
		container := deployment.Spec.Template.Spec.Containers[0]
		repository, tag, _ := strings.Cut(strings.TrimPrefix(container.Image, "docker.io/lateen/"), ":")
		image, made := catalogue.Find(repository)
		if !made || container.Image != "docker.io/lateen/"+repository+":"+version {
			t.Errorf("%s runs %s, which `make images` does not make (tag %s, version %s)", name, container.Image, tag, version)
			continue
		}
		if !strings.HasSuffix(repository, "-"+deployment.Labels["app"]) {
			t.Errorf("%s runs %s", name, container.Image)
		}
		if container.ImagePullPolicy != core.PullIfNotPresent {
			t.Errorf("%s: images that were imported are pulled with policy %s", name, container.ImagePullPolicy)
		}
		if len(container.Command) != 0 || len(container.Args) != 0 {
			t.Errorf("%s does not start what its image says", name)
		}
		if want := image.Ports; len(container.Ports) != 1 || len(want) != 1 || want[0] != "9080/tcp" || container.Ports[0].ContainerPort != 9080 {
			t.Errorf("%s: ports %v, of the image %v", name, container.Ports, want)
		}
		if image.User == "0" {
			t.Errorf("%s: runAsNonRoot cannot be, the image runs as root", name)
		}
	}
}

func TestKubernetesGivesBookinfoNoRights(t *testing.T) {
	for name, deployment := range load(t, "kubernetes/bookinfo.yaml").deployments {
		pod := deployment.Spec.Template.Spec
		c := pod.Containers[0]
		if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: pod's security context %+v", name, s)
		}
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) != 0 {
			t.Errorf("%s: container's security context %+v", name, s)
		}
		for probe, p := range map[string]*core.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/health" || p.HTTPGet.Port.IntValue() != 9080 {
				t.Errorf("%s: %s probe %+v", name, probe, p)
			}
		}
	}
}

// On the local engine node selectors keep neighbours apart; here the scheduler is asked to.
func TestKubernetesKeepsThePageFromThoseItAsks(t *testing.T) {
	found := load(t, "kubernetes/bookinfo.yaml").deployments
	affinity := found["productpage-v1"].Spec.Template.Spec.Affinity
	if affinity == nil || affinity.PodAntiAffinity == nil || len(affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Fatalf("productpage's affinity is %+v", affinity)
	}
	term := affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	selector, err := meta.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil || term.TopologyKey != core.LabelHostname {
		t.Fatalf("%+v: %v", term, err)
	}
	for _, name := range []string{"details-v1", "reviews-v1", "reviews-v2", "reviews-v3"} {
		if !selector.Matches(labels.Set(found[name].Spec.Template.Labels)) {
			t.Errorf("productpage may stand beside %s", name)
		}
	}
}

// What differs between the engines is how a process comes about; policies, routes and commands are for both.
func TestBothManifestsHaveTheSameServicesAndDeployments(t *testing.T) {
	local, kubernetes := load(t, "bookinfo.yaml"), load(t, "kubernetes/bookinfo.yaml")
	if !reflect.DeepEqual(local.accounts, kubernetes.accounts) {
		t.Errorf("accounts %v and %v", local.accounts, kubernetes.accounts)
	}
	if !reflect.DeepEqual(local.services, kubernetes.services) {
		t.Errorf("services %v and %v", local.services, kubernetes.services)
	}
	if len(local.deployments) != len(kubernetes.deployments) {
		t.Errorf("%d deployments and %d", len(local.deployments), len(kubernetes.deployments))
	}
	for name, here := range local.deployments {
		there := kubernetes.deployments[name]
		if !reflect.DeepEqual(here.Labels, there.Labels) || !reflect.DeepEqual(here.Spec.Template.Labels, there.Spec.Template.Labels) ||
			here.Spec.Template.Spec.ServiceAccountName != there.Spec.Template.Spec.ServiceAccountName {
			t.Errorf("%s: labels or account differ", name)
			continue
		}
		a, b := here.Spec.Template.Spec.Containers[0], there.Spec.Template.Spec.Containers[0]
		if a.Name != b.Name || !reflect.DeepEqual(a.Env, b.Env) {
			t.Errorf("%s: %s with %v and %s with %v", name, a.Name, a.Env, b.Name, b.Env)
		}
		// The same interpreter with the same options runs the same script.
		image, _ := catalogue.Find("bookinfo-" + a.Name)
		command := slices.Clone(a.Command)
		command[len(command)-1] = "/opt/bookinfo/" + command[len(command)-1][strings.LastIndex(command[len(command)-1], "/")+1:]
		command[0] = "/usr/bin/" + command[0]
		if !slices.Equal(command, image.Entrypoint) {
			t.Errorf("%s: the local engine runs %v, the image %v", name, command, image.Entrypoint)
		}
	}
}
