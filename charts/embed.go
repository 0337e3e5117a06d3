// Package charts holds the Helm charts of the mesh, embedded, so that `lateen install` and `helm install` apply the same objects.
// Package internal/install applies them.
package charts

import "embed"

// FS has the charts as folders, lateen-crds and lateen.
//
//go:embed all:lateen all:lateen-crds
var FS embed.FS
