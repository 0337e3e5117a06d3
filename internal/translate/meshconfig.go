package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	meshapi "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/types/known/durationpb"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/model"
)

// MeshSettings are the settings of the mesh that proxies obey which read requests.
type MeshSettings struct {
	Settings *l7.MeshSettings
	// Unserved are the fields that are set and that no proxy goes by.
	Unserved []string
	// Conditions are for the author of the ConfigMap.
	Conditions []model.Condition
}

// Aliases are all further names of the mesh's trust domain.
func (s MeshSettings) Aliases() []string { return s.Settings.GetTrustDomainAliases() }

// Mesh is the mesh as policies for requests mean it: with the aliases of the ConfigMap beside those that node proxies know.
func (s MeshSettings) Mesh(mesh Mesh) Mesh {
	mesh.TrustDomainAliases = s.Aliases()
	return mesh
}

// ConfigKey names the ConfigMap of the mesh's settings.
func (m Mesh) ConfigKey() model.Key {
	return model.Key{Kind: "ConfigMap", Namespace: m.RootNamespace, Name: meshconfig.ObjectName}
}

// ReadMeshConfig reads the settings out of the ConfigMap; nil means that there is none, and Istio's defaults count.
func ReadMeshConfig(mesh Mesh, config *corev1.ConfigMap) MeshSettings {
	out := MeshSettings{Settings: &l7.MeshSettings{AccessLog: &l7.AccessLog{}, TrustDomain: mesh.TrustDomain, TrustDomainAliases: slices.Clone(mesh.TrustDomainAliases)}}
	if config == nil {
		return out
	}
	text, given := config.Data[meshconfig.DataKey]
	if !given {
		out.Conditions = []model.Condition{rejected("Invalid", fmt.Sprintf("it has no key %s, so Istio's defaults count for waypoints; write the MeshConfig under that key", meshconfig.DataKey))}
		return out
	}
	read, err := meshconfig.Parse(text)
	if err != nil {
		// The sources keep the version before. There was none.
		out.Conditions = []model.Condition{rejected("Invalid", fmt.Sprintf("data.%s: %v. Until then Istio's defaults count for waypoints", meshconfig.DataKey, err))}
		return out
	}
	out.fill(read.Message)
	v := newVerdict()
	if file := read.Message.GetAccessLogFile(); file != "" && file != "/dev/stdout" {
		v.note("", fmt.Sprintf("accessLogFile is %.100q: waypoints write the access log to their standard output, whatever the file", file))
	}
	if out.Unserved = read.Unserved(mesh.TrustDomain, mesh.RootNamespace); len(out.Unserved) > 0 {
		message := "no proxy of this mesh goes by " + strings.Join(out.Unserved, ", ")
		deciding := slices.DeleteFunc(slices.Clone(out.Unserved), func(name string) bool { return !slices.Contains(meshconfig.DecidingAccess, name) })
		if len(deciding) > 0 {
			message += ", of which " + strings.Join(deciding, ", ") + " decide access"
		}
		v.note("UnsupportedValue", message)
	}
	if len(read.Unknown) > 0 {
		v.note("UnsupportedValue", "fields that are not known here: "+strings.Join(read.Unknown, ", ")+"; they come of a later Istio, or are misspelt")
	}
	out.Conditions = v.conditions()
	return out
}

// The conditions on which Istio repeats a request where a policy names none.
var retriedByDefault = []string{"connect-failure", "refused-stream", "unavailable", "cancelled"}

func (s *MeshSettings) fill(c *meshapi.MeshConfig) {
	out := s.Settings
	switch c.GetPathNormalization().GetNormalization() {
	case meshapi.MeshConfig_ProxyPathNormalization_NONE:
		out.PathNormalization = l7.PathNormalization_NO_NORMALIZATION
	case meshapi.MeshConfig_ProxyPathNormalization_MERGE_SLASHES:
		out.PathNormalization = l7.PathNormalization_MERGE_SLASHES
	case meshapi.MeshConfig_ProxyPathNormalization_DECODE_AND_MERGE_SLASHES:
		out.PathNormalization = l7.PathNormalization_DECODE_AND_MERGE_SLASHES
	}
	out.AccessLog.Enabled, out.AccessLog.Format = c.GetAccessLogFile() != "", c.GetAccessLogFormat()
	if c.GetAccessLogEncoding() == meshapi.MeshConfig_JSON {
		out.AccessLog.Encoding = l7.AccessLog_JSON
	}
	for _, alias := range c.GetTrustDomainAliases() {
		if alias != "" && alias != out.TrustDomain && !slices.Contains(out.TrustDomainAliases, alias) {
			out.TrustDomainAliases = append(out.TrustDomainAliases, alias)
		}
	}
	out.ConnectTimeoutMs = milliseconds(c.GetConnectTimeout())
	if r := c.GetDefaultHttpRetryPolicy(); r != nil {
		out.Retry = &l7.Retry{Attempts: uint32(max(0, r.GetAttempts())), PerTryTimeoutMs: milliseconds(r.GetPerTryTimeout())}
		for on := range strings.SplitSeq(r.GetRetryOn(), ",") {
			if on = strings.TrimSpace(on); on != "" {
				out.Retry.On = append(out.Retry.On, on)
			}
		}
		if len(out.Retry.On) == 0 {
			out.Retry.On = slices.Clone(retriedByDefault)
		}
	}
	if o := c.GetOutboundTrafficPolicy(); o != nil && o.GetMode() == meshapi.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY {
		out.OutboundPolicy = l7.OutboundPolicy_REGISTRY_ONLY
	}
}

// milliseconds is a time that proxies wait: at least 1 ms if it is positive, and 0 if none is given.
func milliseconds(d *durationpb.Duration) uint32 {
	if d == nil || d.GetSeconds() < 0 || d.GetSeconds() == 0 && d.GetNanos() <= 0 {
		return 0
	}
	const most = math.MaxUint32 / 1000
	if d.GetSeconds() >= most {
		return math.MaxUint32
	}
	return uint32(max(1, d.AsDuration()/time.Millisecond))
}
