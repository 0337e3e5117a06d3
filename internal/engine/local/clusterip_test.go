package local

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/fabric"
)

func TestServicesGetAddressesOfTheirFamilies(t *testing.T) {
	v4, v6 := []*fabric.Family{fabric.IPv4}, []*fabric.Family{fabric.IPv6}
	dual, reverse := []*fabric.Family{fabric.IPv4, fabric.IPv6}, []*fabric.Family{fabric.IPv6, fabric.IPv4}
	for _, c := range []struct {
		mesh []*fabric.Family
		spec string
		want string // families, policy and addresses, or a part of the error
	}{
		{v4, "", "[IPv4] SingleStack [10.96.0.2]"},
		{v6, "", "[IPv6] SingleStack [fd00:10:96::2]"},
		{dual, "", "[IPv4] SingleStack [10.96.0.2]"},
		{reverse, "", "[IPv6] SingleStack [fd00:10:96::2]"},
		{dual, "ipFamilies: [IPv6]", "[IPv6] SingleStack [fd00:10:96::2]"},
		{dual, "ipFamilyPolicy: PreferDualStack", "[IPv4 IPv6] PreferDualStack [10.96.0.2 fd00:10:96::2]"},
		{v4, "ipFamilyPolicy: PreferDualStack", "[IPv4] PreferDualStack [10.96.0.2]"},
		{dual, "ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]", "[IPv6 IPv4] RequireDualStack [fd00:10:96::2 10.96.0.2]"},
		{dual, "ipFamilies: [IPv6, IPv4]", "[IPv6 IPv4] RequireDualStack [fd00:10:96::2 10.96.0.2]"},
		{dual, "clusterIP: None, ipFamilyPolicy: PreferDualStack", "[IPv4 IPv6] PreferDualStack [None]"},
		{dual, "ipFamilyPolicy: PreferDualStack, clusterIP: 10.96.0.77", "[IPv4 IPv6] PreferDualStack [10.96.0.77 fd00:10:96::2]"},
		{dual, "ipFamilyPolicy: PreferDualStack, clusterIPs: [10.96.0.77, \"fd00:10:96::77\"]", "[IPv4 IPv6] PreferDualStack [10.96.0.77 fd00:10:96::77]"},
		{v4, "ipFamilyPolicy: RequireDualStack", "start it with --ip-families dual"},
		{v4, "ipFamilies: [IPv6]", "the mesh has no IPv6"},
		{dual, "clusterIP: \"fd00:10:96::77\"", "is not in 10.96.0.0/16"},
		{dual, "clusterIP: 10.96.0.10", "reserved"},
	} {
		s := newStore(t.TempDir(), c.mesh, time.Now, newUID)
		text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: default}\nspec: {ports: [{port: 80}], %s}\n", c.spec)
		apply := func(text string) string {
			o, err := decodeOne("a.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%s: %v", c.spec, err)
			}
			if _, err := s.apply(o, "", false); err != nil {
				return err.Error()
			}
			spec := s.list("Service")[0].Value.(*corev1.Service).Spec
			return fmt.Sprint(spec.IPFamilies, " ", *spec.IPFamilyPolicy, " ", spec.ClusterIPs)
		}
		if got := apply(text); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.spec, got, c.want)
			continue
		}
		if strings.HasPrefix(c.want, "[") {
			if again := apply(text); again != c.want {
				t.Errorf("%s: applied again: %s, want %s", c.spec, again, c.want)
			}
		}
	}
}

// A service that gets a second family keeps the address that it has.
func TestAServiceBecomesDualStack(t *testing.T) {
	s := newStore(t.TempDir(), []*fabric.Family{fabric.IPv4, fabric.IPv6}, time.Now, newUID)
	for _, policy := range []string{"SingleStack", "PreferDualStack"} {
		o, err := decodeOne("a.yaml", fmt.Appendf(nil,
			"apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: default}\nspec: {ports: [{port: 80}], ipFamilyPolicy: %s}\n", policy))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.apply(o, "", false); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(s.list("Service")[0].Value.(*corev1.Service).Spec.ClusterIPs); got != "[10.96.0.2 fd00:10:96::2]" {
		t.Errorf("addresses %s", got)
	}
}
