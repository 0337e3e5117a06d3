package kube

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// This file keeps of a ServiceEntry's status the virtual addresses that Istio's control plane chose for its hosts, since clients have resolved
// them. What is no address, and what is of no host of the entry, is left out: nobody checks a status.

// allocatedAddresses reads status.addresses, as far as it has its form.
func allocatedAddresses(u *unstructured.Unstructured) (out []*networkingapi.ServiceEntryAddress) {
	list, ok, err := unstructured.NestedFieldNoCopy(u.Object, "status", "addresses")
	items, isList := list.([]any)
	if !ok || err != nil || !isList {
		return nil
	}
	for _, item := range items {
		fields, _ := item.(map[string]any)
		host, _ := fields["host"].(string)
		value, _ := fields["value"].(string)
		if addr, err := netip.ParseAddr(value); err == nil && addr.Zone() == "" {
			out = append(out, &networkingapi.ServiceEntryAddress{Host: strings.ToLower(host), Value: addr.Unmap().String()})
		}
	}
	return out
}

// keepAllocated keeps one address of each family for each of an entry's hosts.
func keepAllocated(o metav1.Object, allocated []*networkingapi.ServiceEntryAddress) {
	se, ok := o.(*networkingv1.ServiceEntry)
	if !ok || len(allocated) == 0 {
		return
	}
	hosts := map[string]string{}
	for _, h := range se.Spec.Hosts {
		hosts[strings.ToLower(h)] = h // the same bytes once
	}
	type family struct {
		host string
		is4  bool
	}
	seen := map[family]bool{}
	for _, a := range allocated {
		host, ok := hosts[a.Host]
		of := family{a.Host, netip.MustParseAddr(a.Value).Is4()}
		if !ok || seen[of] {
			continue
		}
		seen[of] = true
		a.Host = host
		se.Status.Addresses = append(se.Status.Addresses, a)
	}
}

// sameAllocated says whether two versions of an object have the same addresses in their status.
func sameAllocated(a, b any) bool {
	x, isEntry := a.(*networkingv1.ServiceEntry)
	y, both := b.(*networkingv1.ServiceEntry)
	if !isEntry || !both {
		return isEntry == both
	}
	return slices.EqualFunc(x.Status.Addresses, y.Status.Addresses, func(p, q *networkingapi.ServiceEntryAddress) bool { return proto.Equal(p, q) })
}
