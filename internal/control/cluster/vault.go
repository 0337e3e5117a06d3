package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"

	"lateen.dev/lateen/internal/ca"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model/wellknown"
)

const (
	// CASecret holds the root that the control planes share, in their own namespace.
	CASecret = "lateen-ca"
	// PluggedSecret holds a plugged-in CA, if there is one.
	PluggedSecret = "cacerts"
	// istioSecret holds the root that Istio made of its own.
	istioSecret = "istio-ca-secret"
	// RotateAnnotation on the Secret asks for another root.
	RotateAnnotation = wellknown.RotateRoot
)

// vault keeps the CA in a Secret.
type vault struct {
	secrets   typedcore.SecretInterface
	namespace string
}

var _ ca.Vault = (*vault)(nil)

// Name implements ca.Vault.
func (v *vault) Name() string { return secretName(v.namespace, CASecret) }

func secretName(namespace, name string) string { return "Secret " + namespace + "/" + name }

// Read implements ca.Vault.
func (v *vault) Read(ctx context.Context) (ca.Sealed, error) {
	secret, err := v.secrets.Get(kube.Quiet(ctx), CASecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && secret.DeletionTimestamp != nil:
		return ca.Sealed{}, ca.ErrNoVault
	case err != nil:
		return ca.Sealed{}, v.explain("read", err, "get")
	}
	_, requested := secret.Annotations[RotateAnnotation]
	return ca.Sealed{Data: secret.Data, Version: secret.ResourceVersion, Requested: requested}, nil
}

// Write implements ca.Vault.
func (v *vault) Write(ctx context.Context, data map[string][]byte, version string) (string, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: CASecret, Namespace: v.namespace, Labels: labels(), ResourceVersion: version}, Type: corev1.SecretTypeOpaque, Data: data}
	var err error
	verb := "update"
	if version == "" {
		verb = "create"
		secret, err = v.secrets.Create(kube.Quiet(ctx), secret, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		secret, err = v.update(ctx, secret)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), version != "" && apierrors.IsNotFound(err):
		return "", ca.ErrChanged
	case err != nil:
		return "", v.explain(verb, err, verb)
	}
	return secret.ResourceVersion, nil
}

// update replaces what the Secret holds and leaves what others attached to it: owners, labels, annotations. Its type cannot be changed.
func (v *vault) update(ctx context.Context, to *corev1.Secret) (*corev1.Secret, error) {
	secret, err := v.secrets.Get(kube.Quiet(ctx), CASecret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	secret.ResourceVersion, secret.Data = to.ResourceVersion, to.Data
	delete(secret.Annotations, RotateAnnotation)
	return v.secrets.Update(kube.Quiet(ctx), secret, metav1.UpdateOptions{FieldManager: fieldManager})
}

func (v *vault) explain(act string, err error, verb string) error {
	if why := kube.Refusal(err, "", "secrets", verb); why != "" {
		return fmt.Errorf("%s %s: %s", act, v.Name(), why)
	}
	return fmt.Errorf("%s %s: %w", act, v.Name(), err)
}
