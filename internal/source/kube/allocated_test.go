package kube

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// entryRead is what is kept of a ServiceEntry with a status.
func entryRead(t *testing.T, status string) *networkingv1.ServiceEntry {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: a}\nspec: {hosts: [x.example.com, Y.example.com], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}\nstatus: "+status+"\n"), &u.Object); err != nil {
		t.Fatal(err)
	}
	var k *kind
	for _, each := range kinds {
		if each.name == "ServiceEntry" {
			k = each
		}
	}
	to := &reading{}
	k.read(k, newInterner(), u, to)
	se, ok := to.value.(*networkingv1.ServiceEntry)
	if !ok || len(to.problems) > 0 {
		t.Fatalf("%s: %v, %v", status, to.value, to.problems)
	}
	return se
}

// Of a status the addresses of the entry's hosts are kept, and nothing in it keeps the entry from being read.
func TestAddressesInAStatusAreKept(t *testing.T) {
	for status, want := range map[string]string{
		`{addresses: [{host: x.example.com, value: 240.240.0.1}, {host: x.example.com, value: "2001:2::1"}], conditions: [{type: A, status: "True"}]}`: "x.example.com 240.240.0.1, x.example.com 2001:2::1",
		`{addresses: [{host: y.EXAMPLE.com, value: "::ffff:240.240.0.1"}]}`:                                                                            "Y.example.com 240.240.0.1",
		`{addresses: [{host: x.example.com, value: 240.240.0.1}, {host: x.example.com, value: 240.240.0.2}]}`:                                          "x.example.com 240.240.0.1",
		`{addresses: [{host: other.example.com, value: 240.240.0.1}]}`:                                                                                 "",
		`{addresses: [{host: x.example.com, value: nowhere}, {value: 240.240.0.1}, {host: 7, value: 8}, text, null, []]}`:                              "",
		`{addresses: [{host: x.example.com, value: "fe80::1%eth0"}]}`:                                                                                  "",
		`{addresses: {host: x.example.com}}`:                                                                                                           "",
		`{addresses: "x"}`:                                                                                                                             "",
		`[1]`:                                                                                                                                          "",
		`null`:                                                                                                                                         "",
		`{unknown: {a: b}}`:                                                                                                                            "",
	} {
		se := entryRead(t, status)
		var got []string
		for _, a := range se.Status.Addresses {
			got = append(got, fmt.Sprint(a.Host, " ", a.Value))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: kept %q, want %q", status, got, want)
		}
		if len(se.Status.Conditions) > 0 || len(se.Status.ValidationMessages) > 0 {
			t.Errorf("%s: more is kept: %v", status, &se.Status)
		}
	}
}

// Other changes of a status cause no event; another address does.
func TestAStatusCountsByItsAddressesAlone(t *testing.T) {
	a := entryRead(t, `{addresses: [{host: x.example.com, value: 240.240.0.1}]}`)
	if b := entryRead(t, `{addresses: [{host: x.example.com, value: 240.240.0.1}], conditions: [{type: A, status: "True"}], observedGeneration: 7}`); !same(a, b) {
		t.Error("conditions make it another object")
	}
	if b := entryRead(t, `{addresses: [{host: x.example.com, value: 240.240.0.2}]}`); same(a, b) {
		t.Error("another address makes it no other object")
	}
}

// An object of as many bytes as the API server takes keeps no more than its hosts need.
func TestAStatusDoesNotFillTheMemory(t *testing.T) {
	var all []string
	for i := range 10_000 {
		all = append(all, fmt.Sprintf(`{host: x.example.com, value: "2001:2::%x"}`, i), fmt.Sprintf("{host: h%d.example.com, value: 240.240.0.1}", i))
	}
	if n := len(entryRead(t, "{addresses: ["+strings.Join(all, ", ")+"]}").Status.Addresses); n != 1 {
		t.Errorf("%d addresses are kept", n)
	}
}
