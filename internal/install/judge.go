package install

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/ca/lifetime"
	"lateen.dev/lateen/internal/install/render"
)

// resources of a part, as the values have them.
type resourceValues struct {
	Requests map[string]any `json:"requests"`
	Limits   map[string]any `json:"limits"`
}

// judged are the values whose form alone, which the chart's schema knows, does not say whether a part of the mesh can begin with them.
type judged struct {
	Mesh struct {
		TrustDomain        string   `json:"trustDomain"`
		TrustDomainAliases []string `json:"trustDomainAliases"`
		ClusterID          string   `json:"clusterID"`
		RootNamespace      string   `json:"rootNamespace"`
		ClusterDomain      string   `json:"clusterDomain"`
	} `json:"mesh"`
	Control struct {
		Resources    resourceValues `json:"resources"`
		Advertise    []string       `json:"advertise"`
		Certificates struct {
			TTL            string `json:"ttl"`
			MinTTL         string `json:"minTTL"`
			OwnIdentityTTL string `json:"ownIdentityTTL"`
		} `json:"certificates"`
	} `json:"control"`
	Agent struct {
		Resources             resourceValues `json:"resources"`
		ExcludeOutboundRanges []string       `json:"excludeOutboundRanges"`
	} `json:"agent"`
	Node struct {
		Resources resourceValues `json:"resources"`
	} `json:"node"`
}

// judge refuses, before anything is applied, values that a part would end with as soon as it has begun: by then it has taken the place of one that
// worked. It goes by what the parts themselves read them with.
func judge(values map[string]any) error {
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	var v judged
	if err := yaml.Unmarshal(text, &v); err != nil {
		return err
	}
	var reasons []string
	refuse := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	domain := func(name, value string) {
		if why := validation.IsDNS1123Subdomain(value); value != "" && len(why) > 0 {
			refuse("%s is %q, which is no domain: %s", name, value, strings.Join(why, "; "))
		}
	}
	domain("mesh.trustDomain", v.Mesh.TrustDomain)
	for _, alias := range v.Mesh.TrustDomainAliases {
		domain("mesh.trustDomainAliases", alias)
	}
	domain("mesh.clusterDomain", v.Mesh.ClusterDomain)
	if why := validation.IsDNS1123Label(v.Mesh.RootNamespace); v.Mesh.RootNamespace != "" && len(why) > 0 {
		refuse("mesh.rootNamespace is %q, which is no namespace's name: %s", v.Mesh.RootNamespace, strings.Join(why, "; "))
	}
	if v.Mesh.ClusterID != "" && !clusterID.MatchString(v.Mesh.ClusterID) {
		refuse("mesh.clusterID is %q; begin and end it with a letter or a digit", v.Mesh.ClusterID)
	}
	for _, host := range v.Control.Advertise {
		if _, err := netip.ParseAddr(host); err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
			refuse("control.advertise has %q, which is neither a host name nor an address", host)
		}
	}
	if c := v.Control.Certificates; c.TTL != "" && c.MinTTL != "" {
		ttl, err := time.ParseDuration(c.TTL)
		least, leastErr := time.ParseDuration(c.MinTTL)
		if err == nil {
			err = leastErr
		}
		if err == nil {
			err = lifetime.Judge("control.certificates.ttl", ttl, "control.certificates.minTTL", least)
		}
		if err != nil {
			refuse("%v", err)
		}
	}
	if own := v.Control.Certificates.OwnIdentityTTL; own != "" {
		ttl, err := time.ParseDuration(own)
		if err == nil {
			err = lifetime.JudgeOwn("control.certificates.ownIdentityTTL", ttl)
		}
		if err != nil {
			refuse("%v", err)
		}
	}
	if _, err := redirect.ParseRanges(strings.Join(v.Agent.ExcludeOutboundRanges, ",")); err != nil && len(v.Agent.ExcludeOutboundRanges) > 0 {
		refuse("agent.excludeOutboundRanges: %v", err)
	}
	for _, part := range []struct {
		name string
		of   resourceValues
	}{{"control", v.Control.Resources}, {"agent", v.Agent.Resources}, {"node", v.Node.Resources}} {
		for kind, list := range map[string]map[string]any{"requests": part.of.Requests, "limits": part.of.Limits} {
			for name, amount := range list {
				if q, err := quantity.ParseQuantity(fmt.Sprint(amount)); err != nil || q.Sign() < 0 {
					refuse("%s.resources.%s.%s is %q, which is no amount; write one such as 100m or 128Mi", part.name, kind, name, fmt.Sprint(amount))
				}
			}
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	return &render.ValueError{Chart: "lateen", Reasons: reasons}
}

var clusterID = regexp.MustCompile(`^[A-Za-z0-9]([^\s/]*[A-Za-z0-9])?$`)
