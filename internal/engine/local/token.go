package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The claims of a node's token, and its times.
const (
	tokenIssuer   = "lateen-local"
	tokenAudience = "istio-ca"
	proxyAccount  = "ztunnel"
	tokenValid    = time.Hour
	tokenRenew    = 20 * time.Minute
)

// signer makes the tokens by which proxies prove to the control plane which pod they are, and on which node. Its key lives and dies
// with the engine.
type signer struct{ key *ecdsa.PrivateKey }

func newSigner() (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key for node tokens: %w", err)
	}
	return &signer{key}, nil
}

// publicPEM is what the control plane checks tokens with.
func (s *signer) publicPEM() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

type named struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// boundClaims are the claims of a token that Kubernetes binds to a pod and its node.
type boundClaims struct {
	jwt.RegisteredClaims
	Kubernetes struct {
		Namespace      string `json:"namespace"`
		ServiceAccount named  `json:"serviceaccount"`
		Pod            named  `json:"pod"`
		Node           named  `json:"node"`
	} `json:"kubernetes.io"`
}

// holder is the pod that a token is bound to, with its account and its node.
type holder struct {
	namespace          string
	account, pod, node named
}

// token is a token for a node's proxy.
func (s *signer) token(n *node, accountUID string, now time.Time) (string, error) {
	return s.sign(holder{namespace: meshNamespace, account: named{proxyAccount, accountUID}, pod: named{n.proxyPodName(), n.podUID}, node: named{n.name, n.uid}}, now)
}

// sign makes a token for its holder.
func (s *signer) sign(h holder, now time.Time) (string, error) {
	c := boundClaims{RegisteredClaims: jwt.RegisteredClaims{
		Issuer:    tokenIssuer,
		Audience:  jwt.ClaimStrings{tokenAudience},
		Subject:   "system:serviceaccount:" + h.namespace + ":" + h.account.Name,
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now.Add(-time.Minute)),
		ExpiresAt: jwt.NewNumericDate(now.Add(tokenValid)),
	}}
	c.Kubernetes.Namespace, c.Kubernetes.ServiceAccount, c.Kubernetes.Pod, c.Kubernetes.Node = h.namespace, h.account, h.pod, h.node
	t, err := jwt.NewWithClaims(jwt.SigningMethodES256, c).SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign the token of %s: %w", h.pod.Name, err)
	}
	return t, nil
}

func (n *node) proxyPodName() string { return "ztunnel-" + n.name }
