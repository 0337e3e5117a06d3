// Package charts holds the Helm charts of the mesh, embedded, so that `lateen install` and `helm install` apply the same objects.
// What is done with them is the business of internal/install.
package charts

import "embed"

// FS has the charts as folders, lateen-crds and lateen.
//
//go:embed all:lateen all:lateen-crds
var FS embed.FS
