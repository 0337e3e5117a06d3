package files

import "testing"

// The CRD's rule is an address or a network; a network's gateway knows where its endpoints are.
func TestANetworkIsEnoughOfAnAddress(t *testing.T) {
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: a}\nspec: {hosts: [x.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["
	for text, want := range map[string]int{
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: a}\nspec: {network: far}\n":            0,
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w, namespace: a}\nspec: {serviceAccount: default}\n": 1,
		entry + "{network: far}, {network: far}]}": 0,
		entry + "{network: far}, {weight: 1}]}":    1,
	} {
		if _, problems := Decode("test", []byte(text)); len(problems) != want {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
