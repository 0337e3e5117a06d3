package apiserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// server answers as an API server that knows everything, in protobuf, and notes what it is asked.
func server(t *testing.T, answers map[string]runtime.Object) (client Client, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	speaks := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		what := r.Method + " " + r.URL.Path
		if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			what += " " + o.GetObjectKind().GroupVersionKind().Kind
		}
		*asked = append(*asked, what+" "+r.Header.Get("Accept")[:len("application/vnd.kubernetes.protobuf")])
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		answer := answers[r.URL.Path]
		if answer == nil {
			status := apierrors.NewNotFound(corev1.Resource("pods"), "x").Status()
			status.SetGroupVersionKind(metav1.Unversioned.WithKind("Status"))
			answer = &status
			w.WriteHeader(http.StatusNotFound)
		}
		if err := speaks.Encode(answer, w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	client, err := New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client, asked
}

func of(kind string, o runtime.Object) runtime.Object {
	group := ""
	switch kind {
	case "DaemonSet":
		group = "apps"
	case "TokenRequest":
		group = "authentication.k8s.io"
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return o
}

func TestEachQuestionIsAskedInProtobufAndItsAnswerRead(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"a": "b"}}
	c, asked := server(t, map[string]runtime.Object{
		"/api/v1/namespaces/shop/pods/web":        of("Pod", &corev1.Pod{ObjectMeta: meta}),
		"/api/v1/namespaces/shop/pods/web/status": of("Pod", &corev1.Pod{ObjectMeta: meta}),
		"/api/v1/pods":                                      of("PodList", &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta}}}),
		"/api/v1/namespaces/shop":                           of("Namespace", &corev1.Namespace{ObjectMeta: meta}),
		"/api/v1/namespaces":                                of("NamespaceList", &corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: meta}}}),
		"/api/v1/namespaces/shop/events":                    of("Event", &corev1.Event{ObjectMeta: meta}),
		"/api/v1/namespaces/shop/serviceaccounts/web/token": of("TokenRequest", &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "secret"}}),
		"/apis/apps/v1/namespaces/shop/daemonsets/web":      of("DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}),
	})
	ctx := context.Background()
	name := func(o metav1.Object, err error) string {
		if err != nil {
			return err.Error()
		}
		return o.GetName()
	}
	for _, x := range []struct {
		asks string
		ask  func() string
		want string
	}{
		{"GET /api/v1/namespaces/shop/pods/web", func() string { return name(c.Pods("shop").Get(ctx, "web", metav1.GetOptions{})) }, "web"},
		{"PATCH /api/v1/namespaces/shop/pods/web/status", func() string {
			return name(c.Pods("shop").Patch(ctx, "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status"))
		}, "web"},
		{"GET /api/v1/pods", func() string {
			l, err := c.Pods("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			return l.Items[0].Annotations["a"]
		}, "b"},
		{"GET /api/v1/namespaces/shop", func() string { return name(c.Namespaces().Get(ctx, "shop", metav1.GetOptions{})) }, "web"},
		{"GET /api/v1/namespaces", func() string {
			l, err := c.Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			return l.Items[0].Name
		}, "web"},
		{"POST /api/v1/namespaces/shop/events Event", func() string {
			return name(c.Events("shop").Create(ctx, &corev1.Event{ObjectMeta: meta}, metav1.CreateOptions{}))
		}, "web"},
		{"POST /api/v1/namespaces/shop/serviceaccounts/web/token TokenRequest", func() string {
			r, err := c.ServiceAccounts("shop").CreateToken(ctx, "web", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if err != nil {
				return err.Error()
			}
			return r.Status.Token
		}, "secret"},
		{"GET /apis/apps/v1/namespaces/shop/daemonsets/web", func() string { return name(c.DaemonSets("shop").Get(ctx, "web", metav1.GetOptions{})) }, "web"},
	} {
		*asked = nil
		if got := x.ask(); got != x.want {
			t.Errorf("%s: %q, want %q", x.asks, got, x.want)
		}
		if len(*asked) != 1 || strings.TrimSpace((*asked)[0]) != x.asks+" application/vnd.kubernetes.protobuf" {
			t.Errorf("asked %q, want %q", *asked, x.asks)
		}
	}
}

// What the agent does about a pod that is gone hangs on it.
func TestARefusalIsReadAsOne(t *testing.T) {
	c, _ := server(t, nil)
	if _, err := c.Pods("shop").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}
