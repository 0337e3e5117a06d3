package clients

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestClientsSpeakTheirEncodings(t *testing.T) {
	accepted := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted <- r.Header.Get("Accept")
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	typed, err := Typed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := Dynamic(cfg)
	if err != nil {
		t.Fatal(err)
	}
	partial, err := Metadata(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	ctx := context.Background()
	for name, ask := range map[string]func() error{
		"application/vnd.kubernetes.protobuf": func() error { _, err := typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); return err },
		"application/json":                    func() error { _, err := untyped.Resource(pods).List(ctx, metav1.ListOptions{}); return err },
		"as=PartialObjectMetadataList":        func() error { _, err := partial.Resource(pods).List(ctx, metav1.ListOptions{}); return err },
	} {
		if err := ask(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
		if got := <-accepted; !strings.Contains(got, name) {
			t.Errorf("accepts %q, want %s", got, name)
		}
	}
}
