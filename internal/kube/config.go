// Package kube owns how the mesh's programs reach a Kubernetes API server: with whose credentials, how much at once, in which encoding,
// and what its refusals mean. It knows nothing of the mesh, and not Kubernetes' own clients either: these (package clients) are several times as
// large as all else, and the node agent has one of its own.
package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A client sends at most this many requests a second, and this many at once after a pause. Watches count once, when they begin. What a
// server can bear beyond that it says itself (priority and fairness).
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// Config finds a cluster. With neither argument that is the one in whose pod the program runs, else the one that kubectl would speak to
// ($KUBECONFIG, ~/.kube/config); a file, a context or $KUBECONFIG goes before the pod.
func Config(kubeconfig, context string) (*rest.Config, error) {
	cfg, err := find(kubeconfig, context)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = requestsPerSecond, requestBurst
	cfg.UserAgent = userAgent()
	// Lists are read once and watches are never compressed; packing them costs both sides more than it saves.
	cfg.DisableCompression = true
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

// ErrNoCluster is what Config returns, wrapped, where nothing names a cluster.
var ErrNoCluster = errors.New("no cluster is configured")

func find(kubeconfig, context string) (*rest.Config, error) {
	if kubeconfig == "" && context == "" && os.Getenv("KUBECONFIG") == "" {
		cfg, err := rest.InClusterConfig()
		switch {
		case err == nil:
			return cfg, nil
		case !errors.Is(err, rest.ErrNotInCluster):
			return nil, fmt.Errorf("read the pod's service account: %w; the pod needs automountServiceAccountToken: true", err)
		}
	}
	if kubeconfig != "" {
		if _, err := os.Stat(kubeconfig); err != nil {
			return nil, fmt.Errorf("read the kubeconfig: %w; correct --kubeconfig", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rules.WarnIfAllMissing = false
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	switch {
	case err == nil:
		return cfg, nil
	case clientcmd.IsEmptyConfig(err), errors.Is(err, rest.ErrNotInCluster):
		return nil, fmt.Errorf("%w: this is no pod, and neither $KUBECONFIG nor ~/.kube/config names one; give --kubeconfig FILE", ErrNoCluster)
	case context != "":
		return nil, fmt.Errorf("read context %q of the kubeconfig: %w; kubectl config get-contexts lists those that there are", context, err)
	}
	return nil, fmt.Errorf("read the kubeconfig: %w; correct the file, or choose another with --kubeconfig", err)
}

// userAgent names the program in the API server's audit log: "lateen-control/1.2.3 (linux/amd64)".
func userAgent() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("%s/%s (%s/%s)", filepath.Base(os.Args[0]), version, runtime.GOOS, runtime.GOARCH)
}

// InProtobuf has Kubernetes' own kinds spoken of in protobuf: a pod is a third as long as in JSON, and decoded several times as fast.
func InProtobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return cfg
}

// Backoff is how long to wait before asking again what was not answered: 0.3 s at first, at most 30 s, each time up to half as long again,
// so that what failed together does not come back together.
func Backoff() wait.Backoff {
	const longest, jitter = 30 * time.Second, 0.5
	return wait.Backoff{Duration: 300 * time.Millisecond, Factor: 2, Jitter: jitter, Steps: 100, Cap: time.Duration(float64(longest) / (1 + jitter))}
}
