package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

// recordName is the ConfigMap that says what was installed.
const (
	recordName  = "lateen-install"
	recordLabel = wellknown.InstallRecord
)

// anchorName is the ClusterRoleBinding that gives the control plane its rights. The namespace of that account is the installation's: whoever
// can write a ConfigMap somewhere can write a record, but only administrators of the cluster a ClusterRoleBinding. It is made before
// anything else and removed last.
const anchorName = "lateen-control"

// The states of an installation.
const (
	stateInstalling   = "installing"
	stateInstalled    = "installed"
	stateUninstalling = "uninstalling"
)

// Record is what an installation remembers of itself.
type Record struct {
	Namespace string         `json:"namespace"`
	Version   string         `json:"version"`
	State     string         `json:"state"`
	Values    map[string]any `json:"values,omitempty"`
	// Namespaces are those that it made.
	Namespaces []string `json:"namespaces,omitempty"`
	// TakenOver is the mesh whose place was taken to the end: it is not looked for again.
	TakenOver string `json:"takenOver,omitempty"`
	// Helm says that Helm installed it, who keeps its own record.
	Helm bool `json:"helm,omitempty"`
	// Lost says that its parts are there, and what it remembered of its values was gone.
	Lost bool `json:"lost,omitempty"`
	// Bare says that its namespace is gone, or going, and all that it remembered with it: only what it is found by remains.
	Bare bool `json:"bare,omitempty"`

	// written is which state of the ConfigMap this is; empty if there was none.
	written string
}

// same says whether nobody has written between two looks at the record.
func (r *Record) same(as *Record) bool {
	if r == nil || as == nil {
		return r == as
	}
	return r.Namespace == as.Namespace && r.written == as.written && (r.Bare || as.Bare || r.State == as.State && r.Version == as.Version)
}

func (r *Record) copy() *Record {
	if r == nil {
		return nil
	}
	c := *r
	return &c
}

// bare refuses to go on with what is all but removed.
func (r *Record) bare() error {
	return &api.Error{Code: 409, Message: fmt.Sprintf("the removal of Lateen from namespace %s was begun and not ended: its values and parts are gone", r.Namespace),
		Fix: fmt.Sprintf("end it with lateen uninstall --namespace %s, and then install anew with lateen install", r.Namespace)}
}

// tookOver says whether the place of a mesh was taken to the end. Earlier versions noted only that they were asked to, and that they had ended.
func (r *Record) tookOver(mesh string) bool {
	return r != nil && (r.TakenOver == mesh || r.State == stateInstalled && r.Values["takeOver"] == mesh)
}

// LostError says what is amiss with an installation whose values nobody knows any more, and the fix; nil if they are known.
func (r *Record) LostError() error {
	if !r.Lost {
		return nil
	}
	return r.lost()
}

// lost refuses to go on with values that nobody knows: the chart's own in their place would change the mesh under whoever uses it.
func (r *Record) lost() error {
	return &api.Error{Code: 409, Message: fmt.Sprintf("Lateen is installed in namespace %s, and the values that it was installed with are lost: ConfigMap %s/%s was gone", r.Namespace, r.Namespace, recordName),
		Fix: fmt.Sprintf("bring the ConfigMap back, or say them all again with lateen upgrade --reset-values (--values, --set); what must be alike everywhere is in ConfigMap %s/lateen-mesh, and --dry-run shows what would change", r.Namespace)}
}

// Find returns the installation that the cluster has; nil if it has none.
func (c *Cluster) Find(ctx context.Context) (*Record, error) {
	anchor, err := c.objects().get(ctx, named("ClusterRoleBinding", "", anchorName))
	if err != nil || anchor == nil {
		return nil, err
	}
	namespace := home(anchor)
	if namespace == "" {
		return nil, nil // of somebody else; who installs hears of it
	}
	o, err := c.objects().get(ctx, named("ConfigMap", namespace, recordName))
	switch {
	case err != nil:
		return nil, err
	case o != nil:
		return readRecord(o)
	case anchor.GetLabels()[managedBy] == "Helm":
		return &Record{Namespace: namespace, Version: anchor.GetLabels()[wellknown.AppVersion], State: stateInstalled, Helm: true}, nil
	}
	r := &Record{Namespace: namespace, Version: anchor.GetLabels()[wellknown.AppVersion], State: stateInstalling}
	// The control plane is made after the record and goes before it. Without, it was broken off when it had only begun, or was all but ended.
	control, err := c.objects().get(ctx, named("Deployment", namespace, controlName))
	var said *api.Error
	if err != nil && !(errors.As(err, &said) && said.Code == 403) {
		return nil, err
	}
	r.Lost = err != nil || control != nil // who may not see that does not install either
	if r.Lost {
		return r, nil
	}
	switch stays, err := c.namespaces().stays(ctx, namespace); {
	case errors.As(err, &said) && said.Code == 403: // nor does who may not see that
	case err != nil:
		return nil, err
	case stays != namespaceStays:
		// An installation makes the namespace before what it is found by, so this one was being removed.
		r.Bare, r.State = true, stateUninstalling
	}
	return r, nil
}

// places are the namespaces in which an installation can have objects. What bears its labels elsewhere is no affair of its.
func (r *Record) places() []string {
	return append([]string{r.Namespace, rootNamespace(r.Values)}, r.Namespaces...)
}

// home is the namespace of the control plane that an anchor is for; empty if it is for none.
func home(anchor *unstructured.Unstructured) string {
	if anchor.GetLabels()[partOf] != lateen {
		return ""
	}
	subjects, _, _ := unstructured.NestedSlice(anchor.Object, "subjects")
	for _, s := range subjects {
		if m, ok := s.(map[string]any); ok && m["kind"] == "ServiceAccount" && m["name"] == anchorName {
			namespace, _ := m["namespace"].(string)
			return namespace
		}
	}
	return ""
}

func readRecord(o *unstructured.Unstructured) (*Record, error) {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	r := &Record{Namespace: o.GetNamespace(), Version: data["version"], State: data["state"], Namespaces: strings.Fields(data["namespaces"]), TakenOver: data["takenOver"], Lost: data["lost"] == "true",
		written: fmt.Sprint(o.GetUID(), o.GetResourceVersion())}
	if err := yaml.Unmarshal([]byte(data["values"]), &r.Values); err != nil {
		return nil, fmt.Errorf("read the values in ConfigMap %s/%s: %w; correct them there", o.GetNamespace(), o.GetName(), err)
	}
	return r, nil
}

// ofHelm refuses what would cut across Helm's own record.
func (r *Record) ofHelm(fix string) error {
	return &api.Error{Code: 409, Message: fmt.Sprintf("Lateen %s in namespace %s was installed by Helm, which keeps a record of its own", r.Version, r.Namespace), Fix: fix}
}

// object is the record as it is kept.
func (r *Record) object() (*unstructured.Unstructured, error) {
	values, err := yaml.Marshal(r.Values)
	if err != nil {
		return nil, err
	}
	o := named("ConfigMap", r.Namespace, recordName)
	o.Object["data"] = map[string]any{"version": r.Version, "state": r.State, "values": string(values), "namespaces": strings.Join(r.Namespaces, " "), "takenOver": r.TakenOver}
	if r.Lost {
		_ = unstructured.SetNestedField(o.Object, "true", "data", "lost")
	}
	o.SetLabels(map[string]string{recordLabel: "install", managedBy: lateen, partOf: lateen, wellknown.AppName: lateen})
	return o, nil
}

func (c *Cluster) keep(ctx context.Context, r *Record) error {
	o, err := r.object()
	if err != nil {
		return err
	}
	_, err = c.objects().apply(ctx, o, false)
	return err
}
