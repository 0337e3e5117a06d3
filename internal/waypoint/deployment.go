package waypoint

import (
	"cmp"
	"maps"
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lateen.dev/lateen/internal/model/wellknown"
)

// Container is the name of the proxy's container. Overlays written for Istio find it.
const Container = "istio-proxy"

// The files by which a waypoint's proxy proves its identity and knows the control plane.
const (
	rootsDir, RootFile  = "/var/run/secrets/istio", "/var/run/secrets/istio/root-cert.pem"
	tokenDir, TokenFile = "/var/run/secrets/tokens", "/var/run/secrets/tokens/istio-token"
	// rootsMap is the ConfigMap that the control plane puts into every namespace.
	rootsMap      = "istio-ca-root-cert"
	tokenAudience = "istio-ca"
	tokenSeconds  = 43200
	// user is nobody of the image's: the proxy needs no right of root.
	user = 65532
	// restartNever is a threshold of a startup probe that no outage reaches: 68 years of a probe each second.
	restartNever = math.MaxInt32
	// defaultGrace is how long a proxy may take to end its connections, in seconds.
	defaultGrace = 60
)

// The names of variables that are set again when all overlays are in.
const graceVariable = "TERMINATION_GRACE_PERIOD_SECONDS"

// podLabels are those of a waypoint's pods. The mesh does not capture them, and node proxies reach them by tunnel.
func podLabels(in Input) map[string]string {
	out := map[string]string{
		wellknown.ServiceCanonicalName: in.Gateway.Name, wellknown.ServiceCanonicalRevision: "latest",
		wellknown.SidecarInject: "false",
	}
	maps.Copy(out, labels(in.Gateway))
	maps.Copy(out, fixedLabels(in.Gateway.Name))
	if in.Settings.Version != "" {
		out[wellknown.AppVersion] = in.Settings.Version
	}
	return out
}

// fixedLabels are without which a pod is no waypoint.
func fixedLabels(name string) map[string]string {
	return map[string]string{wellknown.GatewayName: name, wellknown.DataplaneMode: wellknown.ModeNone, wellknown.Tunnel: "http"}
}

func deployment(in Input) *appsv1.Deployment {
	none, surge := intstr.FromInt32(0), intstr.FromInt32(1)
	podAnnotations := annotations(in.Gateway)
	maps.Copy(podAnnotations, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(MetricsPort), "prometheus.io/path": "/metrics"})
	return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: object(in.Gateway, in.Gateway.Name), Spec: appsv1.DeploymentSpec{
		// No replicas: they are the autoscaler's, or whoever's who scales by hand.
		Selector: &metav1.LabelSelector{MatchLabels: selector(in.Gateway)},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			// A new pod serves before an old one goes.
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &surge}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels(in), Annotations: podAnnotations}, Spec: podSpec(in)},
	}}
}

func podSpec(in Input) corev1.PodSpec {
	no, yes, id := false, true, int64(user)
	seconds, expires := cmp.Or(in.Settings.TerminationGraceSeconds, defaultGrace), int64(tokenSeconds)
	spec := corev1.PodSpec{
		ServiceAccountName: Account(in.Gateway), AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &seconds,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: selector(in.Gateway)}}},
		Containers: []corev1.Container{{
			Name: Container, Image: in.Settings.Image, ImagePullPolicy: in.Settings.PullPolicy, Args: []string{"waypoint"}, Env: environment(in, seconds),
			Ports: []corev1.ContainerPort{port("hbone", HBONEPort), port("http-metrics", MetricsPort), port("http-ready", ReadyPort)},
			// A new pod is seen to be ready within a second. One that waits for the control plane is never restarted: that would not make it
			// ready, and the pauses between restarts would keep it down after the control plane is back.
			StartupProbe:   ready(1, restartNever),
			ReadinessProbe: ready(5, 3),
			Resources:      in.Settings.Resources,
			SecurityContext: &corev1.SecurityContext{Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsNonRoot: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			VolumeMounts: []corev1.VolumeMount{{Name: "roots", MountPath: rootsDir, ReadOnly: true}, {Name: "token", MountPath: tokenDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{
			{Name: "roots", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: rootsMap}}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: tokenAudience, ExpirationSeconds: &expires, Path: "istio-token"}}}}}},
		},
	}
	for _, name := range in.Settings.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return spec
}

func port(name string, number int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}
}

// ready is a probe of readiness. A busy node takes longer than a second to answer one.
func ready(period, failures int32) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 5,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(ReadyPort), Scheme: corev1.URISchemeHTTP}}}
}

// environment has the variables of the node role, and those by which Istio's proxies know themselves.
func environment(in Input, graceSeconds int64) []corev1.EnvVar {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	env := []corev1.EnvVar{
		{Name: "GATEWAY_NAME", Value: in.Gateway.Name},
		field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("SERVICE_ACCOUNT", "spec.serviceAccountName"),
		field("INSTANCE_IP", "status.podIP"), field("NODE_NAME", "spec.nodeName"),
	}
	s := in.Settings
	for _, v := range [][2]string{
		{"XDS_ADDRESS", s.Control}, {"CA_ADDRESS", s.Control}, {"XDS_ROOT_CA", RootFile}, {"CA_ROOT_CA", RootFile}, {"AUTH_TOKEN", TokenFile},
		{"TRUST_DOMAIN", s.TrustDomain}, {"TRUST_DOMAIN_ALIASES", strings.Join(s.TrustDomainAliases, ",")}, {"CLUSTER_ID", s.ClusterID}, {"NETWORK", s.Network}, {"CLUSTER_DOMAIN", s.ClusterDomain},
		{graceVariable, strconv.FormatInt(graceSeconds, 10)}, {"RUST_LOG", s.LogLevel}, {"LOG_FORMAT", s.LogFormat},
	} {
		if v[1] != "" {
			env = append(env, corev1.EnvVar{Name: v[0], Value: v[1]})
		}
	}
	return env
}

// align tells the proxy how long it has to end when an overlay has changed that.
func align(d *appsv1.Deployment) {
	spec := &d.Spec.Template.Spec
	if spec.TerminationGracePeriodSeconds == nil {
		return
	}
	for i := range spec.Containers {
		for j, v := range spec.Containers[i].Env {
			if v.Name == graceVariable {
				spec.Containers[i].Env[j].Value = strconv.FormatInt(*spec.TerminationGracePeriodSeconds, 10)
			}
		}
	}
}
