package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

const settingsServed = "v1/configmaps of one namespace"

func settings(mesh string) object {
	return object{"metadata": object{"name": "istio", "namespace": "istio-system"}, "data": object{"mesh": mesh, "values": "more"}}
}

func TestTheMeshsSettingsAreFollowed(t *testing.T) {
	const resource = "configmaps of one namespace"
	api := newAPIServer(t)
	api.served[settingsServed] = "ConfigMap"
	api.put(resource, settings("accessLogFile: /dev/stdout"))
	c := followIn(t, api, "istio-system")
	key := model.Key{Kind: "ConfigMap", Namespace: "istio-system", Name: "istio"}
	text := func() string {
		o := c.get(key)
		if o == nil {
			return "none"
		}
		if data := o.Value.(*corev1.ConfigMap).Data; len(data) == 1 {
			return data["mesh"]
		}
		return "more than the settings is kept"
	}
	eventually(t, "the settings arrive", func() bool { return text() == "accessLogFile: /dev/stdout" })
	// What cannot be read leaves the version before in force, and is told.
	api.put(resource, settings("connectTimeout: soon"))
	eventually(t, "they are refused", func() bool {
		refused, ok := c.source.Refusal(key)
		return ok && strings.Contains(refused.Condition.Message, "connectTimeout") && strings.Contains(refused.Condition.Message, "the version before it stays in force")
	})
	if got := text(); got != "accessLogFile: /dev/stdout" {
		t.Errorf("in force is %q", got)
	}
	api.put(resource, settings("connectTimeout: 3s"))
	eventually(t, "they are good again", func() bool { return text() == "connectTimeout: 3s" })
	api.delete(resource, "istio-system", "istio")
	eventually(t, "they are gone", func() bool { return text() == "none" })
}

func TestWithoutARootNamespaceNoSettingsAreFollowed(t *testing.T) {
	api := newAPIServer(t)
	c := follow(t, api)
	eventually(t, "all is read", func() bool { return c.count() > 0 })
	if n := api.times("configmaps of one namespace list") + api.times("configmaps of one namespace watch"); n > 0 {
		t.Errorf("asked %d times", n)
	}
}
