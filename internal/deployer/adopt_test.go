package deployer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/model/wellknown"
)

// istios is an object of the Gateway shop/waypoint as Istio's controller makes it. more is what else its metadata has.
func istios(kind, more, spec string) string {
	apiVersion := map[string]string{"Deployment": "apps/v1"}[kind]
	if apiVersion == "" {
		apiVersion = "v1"
	}
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: shop, name: waypoint, uid: o-1, resourceVersion: "7", labels: {gateway.istio.io/managed: istio.io-mesh-controller},
  ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: waypoint, uid: uid-1}],
  managedFields: [{manager: istio.io/gateway-controller, operation: Apply, apiVersion: %[1]s, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:old": {}}}},
    {manager: kube-controller-manager, operation: Update, subresource: status, apiVersion: %[1]s}]%[3]s}%[4]s}`, apiVersion, kind, more, spec)
}

const selected = `, spec: {selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: waypoint}}}`

func istioGateway() string {
	return strings.Replace(plainGateway, "gatewayClassName: lateen-waypoint", "gatewayClassName: istio-waypoint", 1)
}

const (
	istiod     = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: istio-system, name: istiod, labels: {app: istiod}}, spec: {replicas: 1}}`
	scaledDown = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: istio-system, name: istiod, labels: {app: istiod}}, spec: {replicas: 0}}`
)

// lease is that of Istio's controller. The rig's time is 00:16:40.
func lease(holder, renewed string) string {
	return fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: istio-system, name: istio-gateway-deployment-default}, spec: {holderIdentity: %q, leaseDurationSeconds: 30, renewTime: "1970-01-01T00:%s.000000Z"}}`, holder, renewed)
}

var adoption = []string{"adopt ServiceAccount", "adopt Service", "adopt Deployment", "ServiceAccount/waypoint", "Service/waypoint", "Deployment/waypoint", "Gateway/waypoint/status"}

func TestIstiosObjectsAreAdoptedOnceItsControllerIsGone(t *testing.T) {
	for name, there := range map[string][]string{
		"there is none":                    nil,
		"it is scaled down":                {scaledDown, lease("", "16:30")},
		"its lease has not been renewed":   {scaledDown, lease("istiod-1", "16:00")},
		"another controller's lease":       {strings.Replace(lease("istiod-1", "16:30"), "istio-gateway-deployment-default", "istio-leases", 1)},
		"an istiod of some other software": {strings.Replace(istiod, "istio-system", "elsewhere", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, append(there, istioGateway(), istios("ServiceAccount", "", ""), istios("Service", "", ""), istios("Deployment", "", selected))...)
			if err := r.reconcile(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.writes, adoption) {
				t.Errorf("wrote %v", r.writes)
			}
			r.says("True", "Deployed")
		})
	}
}

// Two controllers that apply the same objects would take the fields from each other again and again.
func TestNothingIsWrittenWhileIstiosControllerRuns(t *testing.T) {
	for name, c := range map[string]struct{ there, words string }{
		"an istiod":                         {istiod, "Deployment istio-system/istiod runs Istio's controller"},
		"an istiod of the default replicas": {strings.Replace(istiod, "spec: {replicas: 1}", "spec: {}", 1), "Deployment istio-system/istiod runs"},
		"an istiod that is about to end":    {strings.Replace(scaledDown, "spec: {replicas: 0}", "spec: {replicas: 0}, status: {replicas: 1}", 1), "Deployment istio-system/istiod runs"},
		"an istiod outside of the cluster":  {lease("istiod-far", "16:30"), "Lease istio-system/istio-gateway-deployment-default is held by istiod-far"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, objects := range [][]string{{istios("Deployment", "", selected)}, nil} {
				r := newRig(t, append(objects, c.there, istioGateway())...)
				if err := r.reconcile(); err != nil {
					t.Fatal(err)
				}
				if want := []string{"Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
					t.Errorf("wrote %v", r.writes)
				}
				r.says("False", "LeftToIstio", c.words, "lateen install --take-over=istio", `{"spec":{"gatewayClassName":"lateen-waypoint"}}`)
			}
		})
	}
}

func TestADeployerThatMayNotLookForIstioSaysSo(t *testing.T) {
	for _, of := range []string{"deployments", "leases"} {
		r := newRig(t, istioGateway(), istios("Deployment", "", selected))
		r.client.PrependReactor("list", of, func(a kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
		})
		if err := r.reconcile(); !apierrors.IsForbidden(err) {
			t.Errorf("it is not tried again: %v", err)
		}
		if want := []string{"Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
			t.Errorf("wrote %v", r.writes)
		}
		r.says("False", "IstioUnknown", "cannot be told", "it may not list "+of, "this mesh leaves its Gateways alone")
	}
}

// The control plane removes its conditions once a Gateway is left to Istio. An API server that cannot answer is no reason for that.
func TestNothingIsSaidWhileTheAPIServerIsAway(t *testing.T) {
	for name, away := range map[string]error{
		"unavailable":       apierrors.NewServiceUnavailable("etcd is not there"),
		"an internal error": apierrors.NewInternalError(errors.New("leader changed")),
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"a connection ends": &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("connection reset by peer")},
		"the look ends":     context.Canceled,
		"the look is late":  context.DeadlineExceeded,
	} {
		for _, of := range []string{"deployments", "leases"} {
			t.Run(name+"/"+of, func(t *testing.T) {
				r := newRig(t, istioGateway(), istios("Deployment", "", selected))
				r.client.PrependReactor("list", of, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, away })
				if err := r.reconcile(); !errors.Is(err, away) {
					t.Errorf("it is not tried again: %v", err)
				}
				if len(r.writes) > 0 {
					t.Errorf("wrote %v", r.writes)
				}
			})
		}
	}
}

func TestAnIstiodThatCannotBeReadIsNamed(t *testing.T) {
	for name, there := range map[string]string{
		"Deployment istio-system/istiod":                      strings.Replace(istiod, "replicas: 1", "replicas: many", 1),
		"Lease istio-system/istio-gateway-deployment-default": strings.Replace(lease("istiod-1", "16:30"), "leaseDurationSeconds: 30", "leaseDurationSeconds: long", 1),
	} {
		r := newRig(t, there, istioGateway(), istios("Deployment", "", selected))
		if err := r.reconcile(); err == nil {
			t.Error("it is not tried again")
		}
		if want := []string{"Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
			t.Errorf("wrote %v", r.writes)
		}
		r.says("False", "IstioUnknown", "whether Istio's controller runs in namespace istio-system cannot be told: read "+name)
	}
}

func TestAGatewayThatIstioGaveUpIsAdoptedWhileItRuns(t *testing.T) {
	r := newRig(t, istiod, lease("istiod-1", "16:30"), plainGateway, istios("ServiceAccount", "", ""), istios("Service", "", ""), istios("Deployment", "", selected))
	if err := r.reconcile(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.writes, adoption) {
		t.Errorf("wrote %v", r.writes)
	}
}

func TestOnlyWhatIstioMadeForTheGatewayIsAdopted(t *testing.T) {
	for name, c := range map[string]struct{ change, to, words string }{
		"no label of Istio's":       {"istio.io-mesh-controller", "istio.io-gateway-controller", "exists and was made by istio.io/gateway-controller"},
		"another Gateway's":         {"uid: uid-1", "uid: uid-2", "exists and was made by"},
		"another manager's":         {"manager: istio.io/gateway-controller", "manager: kubectl", "exists and was made by kubectl"},
		"a selector of older Istio": {"gateway.networking.k8s.io/gateway-name: waypoint}", "istio.io/gateway-name: waypoint}", "of an Istio before 1.24"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, istioGateway(), istios("ServiceAccount", "", ""), strings.Replace(istios("Deployment", "", selected), c.change, c.to, 1))
			if err := r.reconcile(); err != nil {
				t.Fatal(err)
			}
			if want := []string{"Gateway/waypoint/status"}; !slices.Equal(r.writes, want) {
				t.Errorf("wrote %v", r.writes)
			}
			r.says("False", "Taken", c.words, "kubectl delete -n shop deployment waypoint")
		})
	}
}

func TestFieldsThatIstioAppliedAreHandedOver(t *testing.T) {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1", Subresource: subresource, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	for name, c := range map[string]struct{ all, want []metav1.ManagedFieldsEntry }{
		"Istio's alone":     {[]metav1.ManagedFieldsEntry{entry(istioManager, "", `{"f:spec":{"f:a":{}}}`)}, []metav1.ManagedFieldsEntry{entry(FieldManager, "", `{"f:spec":{"f:a":{}}}`)}},
		"those of both":     {[]metav1.ManagedFieldsEntry{entry(FieldManager, "", `{"f:spec":{"f:b":{}}}`), entry(istioManager, "", `{"f:spec":{"f:a":{}}}`)}, []metav1.ManagedFieldsEntry{entry(FieldManager, "", `{"f:spec":{"f:a":{},"f:b":{}}}`)}},
		"others' stay":      {[]metav1.ManagedFieldsEntry{entry("kubectl", "", `{"f:x":{}}`), entry(istioManager, "", `{"f:a":{}}`)}, []metav1.ManagedFieldsEntry{entry("kubectl", "", `{"f:x":{}}`), entry(FieldManager, "", `{"f:a":{}}`)}},
		"those of a status": {[]metav1.ManagedFieldsEntry{entry(istioManager, "status", `{"f:x":{}}`)}, []metav1.ManagedFieldsEntry{entry(istioManager, "status", `{"f:x":{}}`)}},
	} {
		got, err := handedOver(c.all)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v, %v", name, got, c.want, err)
		}
	}
	if _, err := handedOver([]metav1.ManagedFieldsEntry{entry(istioManager, "", `[`)}); err == nil {
		t.Error("fields that cannot be read are passed over")
	}
}

func TestAnIstiodThatGoesHasGatewaysLookedAt(t *testing.T) {
	r := newRig(t, istiod, istioGateway())
	r.deployer.IstioClass = true
	r.lead()
	r.eventually("the Gateway is left alone", func() bool { return slices.Equal(r.writes, []string{"Gateway/waypoint/status"}) })
	r.eventually("they are watched", r.watches.Began("deployments"))
	if err := r.client.Tracker().Delete(deployments, "istio-system", "istiod"); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is deployed", func() bool { return slices.Contains(r.writes, "Deployment/waypoint") })
	if c := r.condition(); c.Type != wellknown.Deployed {
		t.Errorf("%+v", c)
	}
}
