package apiserver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// watched is a server whose watch tells of a pod, then of how far it is, and then that it is over.
func watched(t *testing.T, mediaType string, object, event runtime.Encoder, framer runtime.Framer, asked *string) Client {
	t.Helper()
	gone := apierrors.NewResourceExpired("too old").Status()
	gone.SetGroupVersionKind(metav1.Unversioned.WithKind("Status"))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.URL.RequestURI()
		w.Header().Set("Content-Type", mediaType)
		out := framer.NewFrameWriter(w)
		for _, e := range []struct {
			kind   watch.EventType
			object runtime.Object
		}{
			{watch.Added, of("Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})},
			{watch.Bookmark, of("Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})},
			{watch.Error, &gone},
		} {
			var body, frame bytes.Buffer
			if err := object.Encode(e.object, &body); err != nil {
				t.Error(err)
			}
			if err := event.Encode(&metav1.WatchEvent{Type: string(e.kind), Object: runtime.RawExtension{Raw: body.Bytes()}}, &frame); err != nil {
				t.Error(err)
			}
			if _, err := out.Write(frame.Bytes()); err != nil {
				t.Error(err)
			}
		}
	}))
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What the agent knows of its node comes by watches, from servers that may speak JSON alone.
func TestAWatchIsFollowedToItsEnd(t *testing.T) {
	binary, text := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	for name, make := range map[string]func(*string) Client{
		"protobuf": func(asked *string) Client {
			return watched(t, "application/vnd.kubernetes.protobuf;stream=watch", binary, protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme), protobuf.LengthDelimitedFramer, asked)
		},
		"JSON": func(asked *string) Client {
			return watched(t, "application/json", text, text, json.Framer, asked)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			seconds, initial := int64(60), true
			w, err := make(&asked).Pods("").Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n1", AllowWatchBookmarks: true, SendInitialEvents: &initial, TimeoutSeconds: &seconds})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			var kinds []watch.EventType
			for e := range w.ResultChan() {
				kinds = append(kinds, e.Type)
				p, isPod := e.Object.(*corev1.Pod)
				switch e.Type {
				case watch.Added:
					if !isPod || p.Name != "web" {
						t.Errorf("%+v", e.Object)
					}
				case watch.Bookmark:
					if !isPod || p.ResourceVersion != "7" || p.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
						t.Errorf("%+v", e.Object)
					}
				case watch.Error:
					if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
						t.Errorf("%v", err)
					}
				}
			}
			if len(kinds) != 3 {
				t.Errorf("%v", kinds)
			}
			if want := "/api/v1/pods?allowWatchBookmarks=true&fieldSelector=spec.nodeName%3Dn1&sendInitialEvents=true&timeout=1m0s&timeoutSeconds=60&watch=true"; asked != want {
				t.Errorf("asked %s, want %s", asked, want)
			}
		})
	}
}
