// Package clients owns clients of every kind that a Kubernetes API server has. They bring all of Kubernetes' API groups into a program.
package clients

import (
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"lateen.dev/lateen/internal/kube"
)

// Typed speaks of Kubernetes' own kinds, in protobuf.
func Typed(cfg *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(kube.InProtobuf(cfg))
	if err != nil {
		return nil, fmt.Errorf("set up a client of %s: %w", cfg.Host, err)
	}
	return client, nil
}

// Dynamic speaks of any kind, as JSON without types.
func Dynamic(cfg *rest.Config) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client of %s: %w", cfg.Host, err)
	}
	return client, nil
}

// Metadata speaks of any kind's metadata alone.
func Metadata(cfg *rest.Config) (metadata.Interface, error) {
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up a client of %s: %w", cfg.Host, err)
	}
	return client, nil
}
