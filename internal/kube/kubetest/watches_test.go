package kubetest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestAWatchCountsOnceItBegan(t *testing.T) {
	client := fake.NewClientset()
	w := Count(&client.Fake)
	if w.Began("pods")() {
		t.Error("a watch counts before it began")
	}
	if _, err := client.CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if !w.Began("pods")() || w.Began("secrets")() {
		t.Errorf("these began: %v", w.began)
	}
	if _, err := client.CoreV1().Secrets("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "new"}); err == nil || w.Began("secrets")() {
		t.Errorf("a watch that is refused counts: %v", err)
	}
}
