package install

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/install/render"
)

// A value that a part does not begin with would be found out by a control plane, or an agent, that has taken the place of one that worked.
func TestValuesThatNoPartBeginsWithAreRefused(t *testing.T) {
	for setting, says := range map[string]string{
		"control.certificates.ttl=0s":                         "control.certificates.ttl is 0s; use 2s to 2160h",
		"control.certificates.ttl=1ms":                        "control.certificates.ttl is 1ms",
		"control.certificates.minTTL=48h":                     "control.certificates.minTTL is 48h0m0s; use 1s to control.certificates.ttl",
		"control.certificates.ownIdentityTTL=1s":              "control.certificates.ownIdentityTTL is 1s; use 2s to 2160h",
		"control.certificates.ownIdentityTTL=30m":             "",
		"agent.excludeOutboundRanges={999.1.1.1/99}":          "999.1.1.1/99",
		"agent.excludeOutboundRanges={10.0.0.1/8}":            "write 10.0.0.0/8",
		"mesh.trustDomain=a..b":                               `mesh.trustDomain is "a..b"`,
		"mesh.trustDomainAliases={a..b}":                      "mesh.trustDomainAliases",
		"mesh.clusterDomain=a..b":                             "mesh.clusterDomain",
		"mesh.clusterID=..":                                   "mesh.clusterID",
		"mesh.rootNamespace=a.b":                              "mesh.rootNamespace",
		"control.advertise={-}":                               "control.advertise",
		"control.resources.requests.cpu=abc":                  "control.resources.requests.cpu",
		"node.resources.limits.memory=-1Gi":                   "node.resources.limits.memory",
		"control.certificates.ttl=1h":                         "",
		"agent.excludeOutboundRanges={10.0.0.0/8,fd00::1}":    "",
		"control.advertise={mesh.example,192.0.2.1,fd00::1}":  "",
		"control.resources.limits.memory=1073741824":          "",
		"mesh.clusterID=my_cluster-1,mesh.trustDomain=td.two": "",
	} {
		o := options()
		var err error
		if o.Values, err = render.UserValues(nil, []string{setting}); err != nil {
			t.Fatal(err)
		}
		c := cluster(t)
		i, err := c.Prepare(t.Context(), o)
		if says == "" && (err != nil || i == nil) {
			t.Errorf("%s: %v", setting, err)
		}
		if says != "" && (!render.IsValueError(err) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
