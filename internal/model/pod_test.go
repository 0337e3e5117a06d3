package model

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodHasTheIdentityOfItsServiceAccountUnlessItIsStatic(t *testing.T) {
	yes := true
	owner := func(apiVersion, kind string, controller *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "n1", Controller: controller}}
	}
	mirror := map[string]string{"kubernetes.io/config.mirror": ""}
	for _, c := range []struct {
		name, account string
		annotations   map[string]string
		owners        []metav1.OwnerReference
		want          bool
	}{
		{"an account", "web", nil, nil, true},
		{"no account", "", nil, nil, false},
		{"a mirror without an account", "", mirror, owner("v1", "Node", &yes), false},
		{"a mirror with an account", "web", mirror, nil, false},
		{"controlled by its node", "web", nil, owner("v1", "Node", &yes), false},
		{"owned by its node, which does not control it", "web", nil, owner("v1", "Node", nil), true},
		{"controlled by a custom resource of that name", "web", nil, owner("chain.example.com/v1", "Node", &yes), true},
		{"controlled by a ReplicaSet", "web", nil, owner("apps/v1", "ReplicaSet", &yes), true},
		{"with the annotation of a static pod's source alone", "web", map[string]string{"kubernetes.io/config.source": "api"}, nil, true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations, OwnerReferences: c.owners}, Spec: corev1.PodSpec{ServiceAccountName: c.account}}
		if name, ok := Account(pod); ok != c.want || ok && name != c.account {
			t.Errorf("%s: account %q, %v", c.name, name, ok)
		}
	}
}
