package local

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/podspec"
	"lateen.dev/lateen/internal/model"
)

// podIdentity is what a pod is from its beginning to its end. It never changes and needs no lock.
type podIdentity struct {
	uid       string
	namespace string
	name      string
	node      *node
	ip        netip.Addr   // its first address; the node's for a pod on the node's network
	ips       []netip.Addr // all of them, one for each family
	port      string       // the node's end of its link
	owner     model.Key    // the Pod or Deployment that asked for it
	hash      string       // of the template it was made from
	dir       string       // directory of the manifest: LATEEN_MANIFEST_DIR
	spec      corev1.PodSpec
	unixUID   int
	ownName   bool // it asks for its certificate itself, and has a token to do so
	created   time.Time
}

// serviceAccount is the account the pod runs as.
func (id *podIdentity) serviceAccount() string { return podspec.ServiceAccountOf(&id.spec) }

// onNodesNetwork says that a pod shares its node's network.
func (id *podIdentity) onNodesNetwork() bool { return id.spec.HostNetwork }
