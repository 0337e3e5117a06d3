package source

import (
	"regexp"

	"lateen.dev/lateen/internal/model/wellknown"
)

// Annotations by which the kubelet tells of a static pod, whose object at the API server it made itself: the uid there is another than the
// one that the kubelet and the runtime know the pod by.
const (
	ConfigHash   = "kubernetes.io/config.hash"
	ConfigMirror = wellknown.ConfigMirror
)

// staticUID is a kubelet's own uid. The API server gives its uids dashes, so that no other pod can be called like this.
var staticUID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// RuntimeUID is the uid by which the runtime knows the pod. Annotations can be anybody's: only a mirror of a static pod is
// called otherwise than at the API server, and never like a pod of the API server. That two mirrors are called alike is for
// the caller to notice.
func RuntimeUID(uid string, annotations map[string]string) string {
	if hash := annotations[ConfigHash]; hash == annotations[ConfigMirror] && staticUID.MatchString(hash) {
		return hash
	}
	return uid
}
