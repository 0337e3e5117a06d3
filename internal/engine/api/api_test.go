package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"
)

func TestFramesRoundTrip(t *testing.T) {
	roundTrips := func(kind uint8, payload []byte) bool {
		ft := FrameType(kind % uint8(FrameExit+1))
		var b bytes.Buffer
		if WriteFrame(&b, ft, payload) != nil {
			return len(payload) > MaxFrame
		}
		gt, gp, err := ReadFrame(&b)
		return err == nil && gt == ft && bytes.Equal(gp, payload) && b.Len() == 0
	}
	if err := quick.Check(roundTrips, nil); err != nil {
		t.Error(err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 1, 'x'})
	f.Add([]byte{9, 0, 0, 0, 0})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		ft, p, err := ReadFrame(bytes.NewReader(in))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteFrame(&b, ft, p); err != nil {
			t.Fatalf("a frame that was read cannot be written: %v", err)
		}
		if !bytes.HasPrefix(in, b.Bytes()) {
			t.Fatalf("frame %q came back as %q", in, b.Bytes())
		}
	})
}

func TestKindsAreFoundInEverySpelling(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Kinds() {
		group, _, _ := strings.Cut(k.APIVersion, "/")
		for _, s := range append([]string{k.Name, k.Plural, strings.ToUpper(k.Plural), k.Plural + "." + group}, k.Short...) {
			got, ok := LookupKind(s)
			if !ok || got.Name != k.Name {
				t.Errorf("LookupKind(%q) = %q, %v; want %q", s, got.Name, ok, k.Name)
			}
		}
		for _, s := range append([]string{strings.ToLower(k.Name), k.Plural}, k.Short...) {
			if other, dup := seen[s]; dup && other != k.Name {
				t.Errorf("%q names both %s and %s", s, other, k.Name)
			}
			seen[s] = k.Name
		}
	}
	if _, ok := LookupKind("teapots"); ok {
		t.Error("LookupKind knows teapots")
	}
}

func TestClientSaysHowToStartAMeshThatIsNotRunning(t *testing.T) {
	_, err := NewAt("blue", filepath.Join(t.TempDir(), "engine.sock")).Version(t.Context())
	if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "lateen up --name blue") {
		t.Errorf("got %v", err)
	}
}

func serve(t *testing.T, h http.Handler) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return NewAt("m", socket)
}

func TestClientReturnsTheEnginesErrorWithItsFix(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(Error{Message: "no pod x", Fix: "see `lateen get pods`"})
	}))
	_, err := c.Get(t.Context(), GetRequest{Kind: "pod", Name: "x"})
	var e *Error
	if !errors.As(err, &e) || e.Code != 404 || e.Error() != "no pod x; see `lateen get pods`" {
		t.Errorf("got %#v", err)
	}
}

func TestExecCarriesStreamsAndExitCode(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req ExecRequest
		json.NewDecoder(r.Body).Decode(&req)
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lateen-stream\r\n\r\n")
		for {
			ft, p, err := ReadFrame(buf)
			if err != nil {
				t.Error(err)
				return
			}
			if ft == FrameStdinEOF {
				break
			}
			WriteFrame(conn, FrameStdout, bytes.ToUpper(p))
		}
		WriteFrame(conn, FrameStderr, []byte(strings.Join(req.Command, " ")))
		WriteFrame(conn, FrameExit, []byte(`{"code":7}`))
	}))
	var out, errs bytes.Buffer
	code, err := c.Exec(t.Context(), ExecRequest{Command: []string{"a", "b"}}, Streams{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs})
	if err != nil || code != 7 || out.String() != "HELLO" || errs.String() != "a b" {
		t.Errorf("code %d, err %v, out %q, stderr %q", code, err, &out, &errs)
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		io.Copy(io.Discard, buf)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(ctx, ExecRequest{Command: []string{"sleep"}}, Streams{})
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReadEventsEndsAtAFailureAndNamesTheFix(t *testing.T) {
	var got []string
	err := ReadEvents(strings.NewReader(`{"phase":"network","state":"done"}
{"phase":"control","state":"failed","error":"boom","fix":"do this"}
{"phase":"late","state":"done"}`), func(e Event) { got = append(got, e.Phase) })
	if err == nil || err.Error() != "boom; do this" || strings.Join(got, " ") != "network control" {
		t.Errorf("err %v after %v", err, got)
	}
}

func TestAGroupTellsKindsOfTheSameNameApart(t *testing.T) {
	for word, version := range map[string]string{
		"gateways": "gateway.networking.k8s.io/v1", "gtw": "gateway.networking.k8s.io/v1", "gateway.gateway.networking.k8s.io": "gateway.networking.k8s.io/v1",
		"gateways.networking.istio.io": "networking.istio.io/v1", "Gateway.Networking.Istio.IO": "networking.istio.io/v1", "gateways.some.group": "",
	} {
		k, ok := LookupKind(word)
		if ok != (version != "") || k.APIVersion != version {
			t.Errorf("LookupKind(%q) is of %q, %v; want %q", word, k.APIVersion, ok, version)
		}
	}
	for word, group := range map[string]string{"gateways": "", "gateways.networking.istio.io": "networking.istio.io", "pods.v1": "", "virtualservices.networking.istio.io": ""} {
		if got := NamedGroup(word); got != group {
			t.Errorf("NamedGroup(%q) = %q, want %q", word, got, group)
		}
	}
	for want, k := range map[string]Key{
		"gateway.networking.istio.io/gw": {Group: "networking.istio.io", Kind: "Gateway", Name: "gw"},
		"ns/gateway/gw":                  {Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: "ns", Name: "gw"},
		"pod/gw":                         {Kind: "Pod", Name: "gw"},
	} {
		if k.String() != want {
			t.Errorf("%+v is written %s, want %s", k, k, want)
		}
	}
}
