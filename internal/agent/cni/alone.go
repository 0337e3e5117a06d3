package cni

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"lateen.dev/lateen/internal/agent/source"
)

const (
	// askAPI bounds both questions to the API server together.
	askAPI = 2 * time.Second
	// maxObject bounds an object of the API server; etcd stores none that is larger than a few megabytes.
	maxObject = 8 << 20
)

// decideAlone says whether the pod is to be captured while no agent can: by the pod's and its namespace's labels as the
// API server has them, or, when it does not answer either, as the agent last knew it: by the pod, if it ran here then, else
// by its namespace. how says on what the answer rests.
func decideAlone(ctx context.Context, c config, state State, r Request) (wanted bool, how string) {
	wanted, err := askAPIServer(ctx, c.AccessFile, r)
	if err == nil {
		return wanted, "the API server's labels"
	}
	wanted, how = state.wants(r)
	return wanted, fmt.Sprintf("%s (%v)", how, err)
}

func askAPIServer(ctx context.Context, accessFile string, r Request) (bool, error) {
	access, err := readAccess(accessFile)
	if err != nil {
		return false, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(access.CA)) {
		return false, errors.New("the way to the API server names no certificate authority")
	}
	ctx, cancel := context.WithTimeout(ctx, askAPI)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	var pod, namespace struct {
		Metadata struct {
			UID         string            `json:"uid"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			HostNetwork bool `json:"hostNetwork"`
		} `json:"spec"`
	}
	at := "/api/v1/namespaces/" + url.PathEscape(r.Namespace)
	if err := get(ctx, client, access, at+"/pods/"+url.PathEscape(r.Name), &pod); err != nil {
		return false, err
	}
	if m := pod.Metadata; r.UID != "" && source.RuntimeUID(m.UID, m.Annotations) != r.UID {
		return false, errors.New("the API server has another pod of that name")
	}
	if err := get(ctx, client, access, at, &namespace); err != nil {
		return false, err
	}
	return source.Enrolled(
		source.Pod{Labels: pod.Metadata.Labels, Annotations: pod.Metadata.Annotations, HostNetwork: pod.Spec.HostNetwork},
		source.Namespace{Labels: namespace.Metadata.Labels},
	), nil
}

func get(ctx context.Context, client *http.Client, access Access, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, access.Server+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+access.Token)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server answered %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxObject)).Decode(into); err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	return nil
}
