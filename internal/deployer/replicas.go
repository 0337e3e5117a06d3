package deployer

import (
	"bytes"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// leaveReplicas has a Deployment keep its number of pods although the deployer applies none any more: an autoscaler decides it from now on.
// An API server removes a field that its only manager applies no more, and the waypoint would have one pod until the autoscaler acts.
func (d *Deployer) leaveReplicas(ctx context.Context, m *unstructured.Unstructured) error {
	there, err := d.look(ctx, m)
	if err != nil || there == nil {
		return err
	}
	fields, changed, err := withoutReplicas(there.GetManagedFields())
	if err == nil && changed {
		err = d.manage(ctx, there, fields)
	}
	if err != nil {
		return fmt.Errorf("leave the replicas of Deployment %s/%s to its autoscaler: %w", m.GetNamespace(), m.GetName(), err)
	}
	return nil
}

// withoutReplicas are a Deployment's managed fields without the number of replicas among the deployer's. changed says whether it was there.
func withoutReplicas(all []metav1.ManagedFieldsEntry) (out []metav1.ManagedFieldsEntry, changed bool, err error) {
	replicas := fieldpath.MakePathOrDie("spec", "replicas")
	for _, f := range all {
		if appliedHere(f) && f.FieldsV1 != nil {
			set := &fieldpath.Set{}
			if err := set.FromJSON(bytes.NewReader(f.FieldsV1.Raw)); err != nil {
				return nil, false, fmt.Errorf("read the fields of manager %s: %w", f.Manager, err)
			}
			if set.Has(replicas) {
				raw, err := set.Difference(fieldpath.NewSet(replicas)).ToJSON()
				if err != nil {
					return nil, false, err
				}
				f.FieldsV1, changed = &metav1.FieldsV1{Raw: raw}, true
			}
		}
		out = append(out, f)
	}
	return out, changed, nil
}
