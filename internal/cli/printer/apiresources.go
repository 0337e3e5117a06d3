package printer

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// APIResource is a kind of object.
type APIResource struct {
	Name       string   `json:"name"` // the plural
	ShortNames []string `json:"shortNames,omitempty"`
	APIVersion string   `json:"apiVersion"`
	Namespaced bool     `json:"namespaced"`
	Kind       string   `json:"kind"`
	Effect     string   `json:"effect"`           // one of the constants below
	Reason     string   `json:"reason,omitempty"` // why it has none
}

// The parts that act on a kind.
const (
	EffectMesh   = "mesh"   // the control plane
	EffectEngine = "engine" // the local engine
	EffectNone   = "none"
)

// APIResources writes kinds as a table no wider than width, or for programs. A width of 0 is as wide as it needs.
func APIResources(w io.Writer, resources []APIResource, f Format, width int) error {
	if f.Structured() {
		return Write(w, f, resources)
	}
	if f == Name {
		for _, r := range resources {
			name := r.Name
			if group, _, found := strings.Cut(r.APIVersion, "/"); found {
				name += "." + group
			}
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	}
	heading := []string{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "EFFECT"}
	names, spare, copied := []int{0, 2, 4}, []int{3, 5, 1}, []int{0, 2, 4}
	if f == Wide {
		heading = append(heading, "REASON")
		names, spare, copied = []int{0, 2, 4, 6}, []int{3, 2}, []int{0}
	}
	grid := NewGrid(heading...).Copied(copied...)
	for _, r := range resources {
		grid.Row(r.Name, strings.Join(r.ShortNames, ","), r.APIVersion, strconv.FormatBool(r.Namespaced), r.Kind, r.Effect, r.Reason)
	}
	if width > 0 {
		grid.Fit(width, names, spare)
	}
	return grid.Print(w, "")
}
