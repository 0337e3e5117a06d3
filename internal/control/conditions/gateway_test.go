package conditions

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubetesting "k8s.io/client-go/testing"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
)

var shopGateway = model.GatewayKey("shop", "w")

// listeners are those of a Gateway's status as "name: Type=Status/Reason@generation, …", and its addresses.
func (r *rig) listeners(key model.Key) (text string, addresses string) {
	o, err := r.client.Tracker().Get(resource["Gateway"], key.Namespace, key.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(o.(*unstructured.Unstructured).Object, "status")
	var lines []string
	list, _ := status["listeners"].([]any)
	for _, raw := range list {
		l := raw.(map[string]any)
		line := fmt.Sprintf("%v:", l["name"])
		for _, raw := range l["conditions"].([]any) {
			c := raw.(map[string]any)
			line += fmt.Sprintf(" %v=%v/%v@%d", c["type"], c["status"], c["reason"], number(c["observedGeneration"]))
			if c["message"] == "" || c["lastTransitionTime"] == "" {
				r.t.Errorf("%v", c)
			}
		}
		if number(l["attachedRoutes"]) != 0 || len(l["supportedKinds"].([]any)) != 0 {
			r.t.Errorf("%v", l)
		}
		lines = append(lines, line)
	}
	data, _ := json.Marshal(status["addresses"])
	return strings.Join(lines, "; "), string(data)
}

func (r *rig) listenersCome(key model.Key, text, addresses string) {
	r.t.Helper()
	r.eventually("listeners are "+text+" at "+addresses, func() bool {
		gotText, gotAddresses := r.listeners(key)
		return gotText == text && gotAddresses == addresses
	})
}

func TestAWaypointsListenersSayWhatIsMadeOfThem(t *testing.T) {
	r := newRig(t)
	r.writer.Mesh.DomainSuffix = "cluster.local"
	put := func(generation int64, listeners ...gatewayv1.Listener) {
		r.put(shopGateway, "g1", generation, &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "lateen-waypoint", Listeners: listeners}}, nil, inForce)
	}
	r.put(model.GatewayClassKey("lateen-waypoint"), "c1", 1, &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: wellknown.LateenWaypointController}}, nil, inForce)
	tunnel, web := gatewayv1.Listener{Name: "mesh", Protocol: "HBONE", Port: 15008}, gatewayv1.Listener{Name: "web", Protocol: "HTTP", Port: 80}
	r.say(replica.Verdict{Status: model.False, Reason: wellknown.ReasonAwaited, Message: "not acknowledged yet by the proxy of node n1"})
	put(1, tunnel, web)
	r.lead()
	r.comes(shopGateway, "Accepted=True/ListenersNotValid@1 Programmed=False/AwaitingProxies@1")
	r.listenersCome(shopGateway, "mesh: Accepted=True/Accepted@1 Programmed=False/Pending@1 ResolvedRefs=True/ResolvedRefs@1; "+
		"web: Accepted=False/UnsupportedProtocol@1 Programmed=False/Invalid@1 ResolvedRefs=True/ResolvedRefs@1", "null")

	addressed := func() *corev1.Service { return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9"}} }
	r.put(model.ServiceKey("shop", "w"), "s1", 0, addressed(), nil, inForce)
	put(2, tunnel)
	r.say(replica.Verdict{Status: model.True, Reason: wellknown.ReasonProgrammed, Message: "all"})
	const byName = `[{"type":"Hostname","value":"w.shop.svc.cluster.local"}]`
	const inAll = "mesh: Accepted=True/Accepted@%d Programmed=True/Programmed@%d ResolvedRefs=True/ResolvedRefs@%d"
	r.comes(shopGateway, "Accepted=True/Accepted@2 Programmed=True/Programmed@2")
	r.listenersCome(shopGateway, fmt.Sprintf(inAll, 2, 2, 2), byName)
	r.idle()
	writes := r.writes.Load()
	r.writer.Changed([]model.Key{shopGateway}, true)
	r.idle()
	if n := r.writes.Load() - writes; n != 0 {
		t.Errorf("%d writes although nothing is new", n)
	}

	// An address that somebody else says is his to say, and one of ours goes with the Service.
	r.store.Apply([]model.Change{{Key: model.ServiceKey("shop", "w")}})
	put(3, tunnel)
	r.listenersCome(shopGateway, fmt.Sprintf(inAll, 3, 3, 3), "null")
	theirs := map[string]any{"addresses": []any{map[string]any{"type": "IPAddress", "value": "10.0.0.9"}}}
	r.put(model.ServiceKey("shop", "w"), "s2", 0, addressed(), nil, inForce)
	r.put(model.GatewayKey("shop", "x"), "g2", 1, &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "lateen-waypoint", Listeners: []gatewayv1.Listener{tunnel}}}, theirs, inForce)
	r.listenersCome(model.GatewayKey("shop", "x"), fmt.Sprintf(inAll, 1, 1, 1), `[{"type":"IPAddress","value":"10.0.0.9"}]`)
}

func TestAGatewayIsProgrammedByItsServiceAndItsPods(t *testing.T) {
	r := newRig(t)
	r.writer.Mesh.DomainSuffix = "cluster.local"
	r.put(model.GatewayClassKey("lateen-waypoint"), "c1", 1, &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: wellknown.LateenWaypointController}}, nil, inForce)
	service := func(ip string) {
		r.put(model.ServiceKey("shop", "w"), "s1", 0, &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip}}, nil, inForce)
	}
	put := func(unready bool, deployed ...metav1.Condition) {
		r.unready = unready
		r.put(shopGateway, "g1", 1, &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "lateen-waypoint", Listeners: []gatewayv1.Listener{{Name: "mesh", Protocol: "HBONE", Port: 15008}}},
			Status: gatewayv1.GatewayStatus{Conditions: deployed}}, nil, inForce)
	}
	says := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: wellknown.Deployed, Status: status, Reason: reason, Message: "the deployer says " + reason}
	}
	comes := func(want string, words ...string) {
		t.Helper()
		c := r.comes(shopGateway, "Accepted=True/Accepted@1 Programmed="+want+"@1")["Programmed"]
		for _, w := range words {
			if !strings.Contains(c["message"].(string), w) {
				t.Errorf("%q does not say %q", c["message"], w)
			}
		}
	}
	service("")
	put(false)
	r.lead()
	comes("False/AddressNotAssigned", "Service shop/w has no address yet")
	service("10.96.0.9")
	comes("True/Programmed")
	put(true, says("False", "Progressing"))
	r.idle()
	comes("True/Programmed") // its pods come and go
	put(true, says("False", "Stuck"))
	comes("False/NoResources", "no pod behind Service shop/w is ready: the deployer says Stuck")
	if text, _ := r.listeners(shopGateway); !strings.Contains(text, "Programmed=False/Pending") {
		t.Errorf("its listener says %s", text)
	}
	put(true, says("False", "Progressing"))
	comes("False/Pending", "the deployer says Progressing") // it was not usable before
	put(false, says("False", "Stuck"))
	comes("True/Programmed") // a rollout that does not go on leaves the pods from before
	put(true)
	comes("False/Pending", "no pod behind Service shop/w is ready") // nobody says of its pods that they come again
}

// istio-waypoint is Istio's class, with Istio's controller, unless this mesh has taken its place: whatever is said of its Gateways, Istio says.
func TestGatewaysOfAClassThatIsNotOursAreLeftAlone(t *testing.T) {
	for _, taken := range []bool{false, true} {
		r := newRig(t)
		if taken {
			r.writer.Controllers = append(r.writer.Controllers, wellknown.MeshController)
		}
		r.put(model.GatewayClassKey("istio-waypoint"), "c1", 1, &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: wellknown.MeshController}}, nil, inForce)
		tunnel := gatewayv1.Listener{Name: "mesh", Protocol: "HBONE", Port: 15008}
		r.put(shopGateway, "g1", 1, &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{tunnel}}}, map[string]any{}, inForce)
		r.lead()
		if taken {
			r.comes(shopGateway, "Accepted=True/Accepted@1 Programmed=True/Programmed@1")
			continue
		}
		r.idle()
		if conditions, _ := r.status(shopGateway); conditions != "" || r.writes.Load() != 0 {
			t.Errorf("%s, %d writes", conditions, r.writes.Load())
		}
	}
}

// The deployer can deploy Gateways of Istio's class beside an Istio. Its condition says which of them it leaves to Istio's controller.
func TestAGatewayOfIstiosClassIsOursOnceItIsDeployedHere(t *testing.T) {
	tunnel := gatewayv1.Listener{Name: "mesh", Protocol: "HBONE", Port: 15008}
	managed := func(manager, condition string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "gateway.networking.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"` + condition + `\"}":{"f:status":{}}}}}`)}}
	}
	const istios = "Accepted=True/Accepted@1"
	for name, c := range map[string]struct {
		serve    bool
		class    gatewayv1.GatewayController // empty: there is no object; "taken over": Istio's, whose place this mesh has taken
		deployed string                      // the reason of the deployer's condition
		managers []metav1.ManagedFieldsEntry
		ours     bool
	}{
		"deployed here": {true, "", "Deployed", nil, true},
		"deployed here and of Istio's GatewayClass": {true, wellknown.MeshController, "Progressing", nil, true},
		"refused here":                              {true, "", "Invalid", nil, true},
		"left by an Istio that is gone":             {true, "", "Deployed", []metav1.ManagedFieldsEntry{managed(istioManager, "Accepted"), managed(fieldManager, "Programmed")}, true},
		"the deployer's condition alone is written": {true, "", "Deployed", []metav1.ManagedFieldsEntry{managed("lateen-deployer", wellknown.Deployed)}, true},
		"left to Istio's controller":                {true, "", wellknown.ReasonLeftToIstio, nil, false},
		"an object of its name is another's":        {true, "", wellknown.ReasonTaken, nil, false},
		"left to Istio's after a take-over":         {true, "taken over", wellknown.ReasonLeftToIstio, nil, false},
		"another controller's after a take-over":    {true, "taken over", "Deployed", []metav1.ManagedFieldsEntry{managed("other-controller", "Programmed")}, false},
		"nobody can tell whether Istio runs":        {true, "", wellknown.ReasonIstioUnknown, nil, false},
		"the same after a take-over":                {true, "taken over", wellknown.ReasonIstioUnknown, nil, false},
		"a name taken after a take-over":            {true, "taken over", wellknown.ReasonTaken, nil, true},
		"deployed here after a take-over":           {true, "taken over", "Deployed", nil, true},
		"after a take-over without a deployer":      {true, "taken over", "", nil, true},
		"not deployed":                              {true, "", "", nil, false},
		"the class is not served":                   {false, "", "Deployed", nil, false},
		"of another controller's GatewayClass":      {true, "example.com/other", "Deployed", nil, false},
		"another controller writes its status":      {true, "", "Deployed", []metav1.ManagedFieldsEntry{managed("other-controller", "Programmed")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", c.serve
			var others int64 // writes into the GatewayClass
			if c.class == "taken over" {
				c.class, others = wellknown.MeshController, 1
				r.writer.Controllers = append(r.writer.Controllers, wellknown.MeshController)
			}
			if c.class != "" {
				r.put(model.GatewayClassKey("istio-waypoint"), "c1", 1, &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: c.class}}, nil, inForce)
			}
			gw := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{tunnel}}}
			if c.deployed != "" {
				gw.Status.Conditions = []metav1.Condition{{Type: wellknown.Deployed, Status: metav1.ConditionFalse, Reason: c.deployed, Message: "the deployer's"}}
			}
			before := map[string]any{"conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": int64(1)}}}
			want := istios
			if c.deployed != "" && !c.ours {
				before["conditions"] = append(before["conditions"].([]any), map[string]any{"type": wellknown.Deployed, "status": "False", "reason": c.deployed})
				want += " " + wellknown.Deployed + "=False/" + c.deployed
			}
			r.put(shopGateway, "g1", 1, gw, before, inForce)
			o, err := r.client.Tracker().Get(resource["Gateway"], shopGateway.Namespace, shopGateway.Name)
			if err != nil {
				t.Fatal(err)
			}
			u := o.(*unstructured.Unstructured).DeepCopy()
			u.SetManagedFields(c.managers)
			if err := r.client.Tracker().Update(resource["Gateway"], u, shopGateway.Namespace); err != nil {
				t.Fatal(err)
			}
			r.lead()
			if c.ours {
				r.comes(shopGateway, "Accepted=True/Accepted@1 Programmed=True/Programmed@1")
				r.listenersCome(shopGateway, "mesh: Accepted=True/Accepted@1 Programmed=True/Programmed@1 ResolvedRefs=True/ResolvedRefs@1", "null")
				return
			}
			r.idle()
			if conditions, _ := r.status(shopGateway); conditions != want || r.writes.Load() != others {
				t.Errorf("%s, %d writes", conditions, r.writes.Load())
			}
		})
	}
}

// A take-over can be undone: Istio's controller runs again, and the Gateway is Istio's to speak of. What this mesh said of it holds no more.
func TestWhatWasSaidOfAGatewayIsTakenBackOnceItIsLeftToIstio(t *testing.T) {
	managed := func(manager string, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "gateway.networking.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{` + fields + `}}`)}}
	}
	const (
		both      = `"f:conditions":{"k:{\"type\":\"Accepted\"}":{"f:status":{}},"k:{\"type\":\"Programmed\"}":{"f:status":{}}}`
		accepted  = `"f:conditions":{"k:{\"type\":\"Accepted\"}":{"f:status":{}}}`
		listeners = `,"f:listeners":{"k:{\"name\":\"mesh\"}":{".":{}}}`
		deployed  = `"f:conditions":{"k:{\"type\":\"lateen.dev/Deployed\"}":{"f:status":{}}}`
	)
	for name, c := range map[string]struct {
		reason        string
		isTakenOver   bool
		managers      []metav1.ManagedFieldsEntry
		want          string
		listenersStay bool
		writes        int64
	}{
		"Istio has written nothing":          {wellknown.ReasonLeftToIstio, true, []metav1.ManagedFieldsEntry{managed(fieldManager, both+listeners)}, "lateen.dev/Deployed=False/LeftToIstio", false, 1},
		"Istio has written as well":          {wellknown.ReasonLeftToIstio, true, []metav1.ManagedFieldsEntry{managed(fieldManager, both+listeners), managed(istioManager, accepted+listeners)}, "Accepted=True/Accepted@1 lateen.dev/Deployed=False/LeftToIstio", true, 1},
		"all of it is Istio's":               {wellknown.ReasonLeftToIstio, true, []metav1.ManagedFieldsEntry{managed(istioManager, both+listeners)}, "Accepted=True/Accepted@1 Programmed=True/Programmed@1 lateen.dev/Deployed=False/LeftToIstio", true, 0},
		"a third controller has written":     {wellknown.ReasonLeftToIstio, true, []metav1.ManagedFieldsEntry{managed(fieldManager, both+listeners), managed("other-controller", accepted)}, "Accepted=True/Accepted@1 Programmed=True/Programmed@1 lateen.dev/Deployed=False/LeftToIstio", true, 0},
		"nobody can tell whether Istio runs": {wellknown.ReasonIstioUnknown, true, []metav1.ManagedFieldsEntry{managed(fieldManager, both+listeners)}, "Accepted=True/Accepted@1 Programmed=True/Programmed@1 lateen.dev/Deployed=False/IstioUnknown", true, 0},
		"its name is taken, beside Istio":    {wellknown.ReasonTaken, false, []metav1.ManagedFieldsEntry{managed(fieldManager, both+listeners)}, "lateen.dev/Deployed=False/Taken", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
			if c.isTakenOver {
				r.writer.Controllers = append(r.writer.Controllers, wellknown.MeshController)
			}
			gw := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{{Name: "mesh", Protocol: "HBONE", Port: 15008}}}}
			gw.Status.Conditions = []metav1.Condition{{Type: wellknown.Deployed, Status: metav1.ConditionFalse, Reason: c.reason, Message: "the deployer's"}}
			r.put(shopGateway, "g1", 1, gw, map[string]any{
				"conditions": []any{
					map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": int64(1)},
					map[string]any{"type": "Programmed", "status": "True", "reason": "Programmed", "observedGeneration": int64(1)},
					map[string]any{"type": wellknown.Deployed, "status": "False", "reason": c.reason},
				},
				"listeners": []any{map[string]any{"name": "mesh", "conditions": []any{}}},
			}, inForce)
			o, err := r.client.Tracker().Get(resource["Gateway"], shopGateway.Namespace, shopGateway.Name)
			if err != nil {
				t.Fatal(err)
			}
			u := o.(*unstructured.Unstructured).DeepCopy()
			u.SetManagedFields(append(c.managers, managed("lateen-deployer", deployed)))
			if err := r.client.Tracker().Update(resource["Gateway"], u, shopGateway.Namespace); err != nil {
				t.Fatal(err)
			}
			r.lead()
			r.eventually("the status is written", func() bool { return r.writes.Load() >= c.writes })
			r.idle()
			conditions, _ := r.status(shopGateway)
			o, _ = r.client.Tracker().Get(resource["Gateway"], shopGateway.Namespace, shopGateway.Name)
			_, stay, _ := unstructured.NestedSlice(o.(*unstructured.Unstructured).Object, "status", "listeners")
			if conditions != c.want || stay != c.listenersStay || r.writes.Load() != c.writes {
				t.Errorf("%s, listeners %t, %d writes", conditions, stay, r.writes.Load())
			}
		})
	}
}

// istiosGateway is the Gateway shop/w of Istio's class, in the model with what the deployer is known to say of it, and in the API server with a status.
// managed are the managers of that.
func (r *rig) istiosGateway(known string, status map[string]any, managed ...string) {
	r.t.Helper()
	gw := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{{Name: "mesh", Protocol: "HBONE", Port: 15008}}}}
	gw.Status.Conditions = []metav1.Condition{{Type: wellknown.Deployed, Status: metav1.ConditionFalse, Reason: known, Message: "the deployer's"}}
	r.put(shopGateway, "g1", 1, gw, status, inForce)
	o, err := r.client.Tracker().Get(resource["Gateway"], shopGateway.Namespace, shopGateway.Name)
	if err != nil {
		r.t.Fatal(err)
	}
	u := o.(*unstructured.Unstructured).DeepCopy()
	var entries []metav1.ManagedFieldsEntry
	for _, manager := range managed {
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "gateway.networking.k8s.io/v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"Accepted\"}":{"f:status":{}},"k:{\"type\":\"Programmed\"}":{"f:status":{}}}}}`)}})
	}
	u.SetManagedFields(entries)
	if err := r.client.Tracker().Update(resource["Gateway"], u, shopGateway.Namespace); err != nil {
		r.t.Fatal(err)
	}
}

// saidOfIt is a status in which this mesh says that the Gateway can be used, and the deployer gives a reason.
func saidOfIt(deployed string) map[string]any {
	return map[string]any{"conditions": []any{
		map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "it is a waypoint", "observedGeneration": int64(1)},
		map[string]any{"type": "Programmed", "status": "True", "reason": "Programmed", "message": "all", "observedGeneration": int64(1)},
		map[string]any{"type": wellknown.Deployed, "status": "False", "reason": deployed},
	}}
}

func TestADeployerThatMayNotLookForAWhileChangesNothing(t *testing.T) {
	r := newRig(t)
	r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
	r.istiosGateway("Deployed", saidOfIt("Deployed"), fieldManager)
	r.lead()
	r.eventually("the status is written", func() bool { return r.writes.Load() > 0 })
	r.idle()
	writes := r.writes.Load()
	for _, reason := range []string{wellknown.ReasonIstioUnknown, "Deployed"} {
		r.istiosGateway(reason, nil, fieldManager)
		r.idle()
	}
	if got, _ := r.status(shopGateway); !strings.HasPrefix(got, "Accepted=True/Accepted@1 Programmed=True/Programmed@1 ") || r.writes.Load() != writes {
		t.Errorf("%s, %d writes", got, r.writes.Load()-writes)
	}
}

// The deployer has changed its mind, and the model does not have that yet.
func TestConditionsStayIfTheDeployerSaysSomethingElseByNow(t *testing.T) {
	r := newRig(t)
	r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
	r.istiosGateway(wellknown.ReasonLeftToIstio, saidOfIt("Deployed"), fieldManager)
	r.lead()
	r.eventually("it is tried", func() bool { return r.result(resultConflict) > 0 || r.writes.Load() > 0 })
	if n := r.writes.Load(); n != 0 {
		t.Fatalf("%d writes", n)
	}
	r.istiosGateway("Deployed", nil, fieldManager)
	r.eventually("the listeners are written", func() bool { text, _ := r.listeners(shopGateway); return text != "" })
	if got, _ := r.status(shopGateway); !strings.HasPrefix(got, "Accepted=True/Accepted@1 Programmed=True/Programmed@1 ") {
		t.Error(got)
	}
}

func TestConditionsAreRemovedOfAGatewayThatNoReviewCouldRead(t *testing.T) {
	r := newRig(t)
	r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
	r.istiosGateway(wellknown.ReasonLeftToIstio, saidOfIt(wellknown.ReasonLeftToIstio), fieldManager)
	var refused atomic.Int64
	r.fails(func(a kubetesting.Action) error {
		if a.GetVerb() == "list" && a.GetResource().Resource == "gateways" {
			refused.Add(1)
			return apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
		}
		return nil
	})
	r.lead()
	r.eventually("the review is refused", func() bool { return refused.Load() > 0 })
	r.idle()
	if got, _ := r.status(shopGateway); got != "lateen.dev/Deployed=False/LeftToIstio" {
		t.Error(got)
	}
	asked := r.asked.Load()
	r.writer.Changed([]model.Key{shopGateway}, false)
	r.idle()
	if n := r.asked.Load() - asked; n != 0 {
		t.Errorf("%d requests although all is removed", n)
	}
}

// The deployer looks at no Gateway that names the host of its addresses, so that its condition is of an earlier time.
func TestAConditionOfADeployerThatLooksNoMoreDoesNotCount(t *testing.T) {
	host := gatewayv1.HostnameAddressType
	for name, c := range map[string]struct {
		isTakenOver, ends bool
		ours              bool
	}{
		"after a take-over": {true, false, true},
		"beside Istio":      {false, false, false},
		"while it is being deleted, which the deployer waits for": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
			if c.isTakenOver {
				r.writer.Controllers = append(r.writer.Controllers, wellknown.MeshController)
			}
			gw := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{{Name: "mesh", Protocol: "HBONE", Port: 15008}}}}
			if gw.Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Type: &host, Value: "elsewhere.shop.svc"}}; c.ends {
				gw.Spec.Addresses, gw.DeletionTimestamp = nil, &metav1.Time{Time: time.Unix(1, 0)}
			}
			gw.Status.Conditions = []metav1.Condition{{Type: wellknown.Deployed, Status: metav1.ConditionFalse, Reason: wellknown.ReasonLeftToIstio, Message: "the deployer's"}}
			r.put(shopGateway, "g1", 1, gw, map[string]any{"conditions": []any{map[string]any{"type": wellknown.Deployed, "status": "False", "reason": wellknown.ReasonLeftToIstio}}}, inForce)
			r.lead()
			r.idle()
			if got, _ := r.status(shopGateway); strings.Contains(got, "Accepted=") != c.ours {
				t.Error(got)
			}
		})
	}
}

// The writer keeps a Programmed of this mesh while its proxies are away. Istio's Programmed is about Istio's proxies, so it does not count.
func TestIstiosProgrammedIsNotTakenForThisMeshs(t *testing.T) {
	tunnel := gatewayv1.Listener{Name: "mesh", Protocol: "HBONE", Port: 15008}
	for name, c := range map[string]struct {
		managers []string
		status   model.Status // of what the proxies have, and its reason
		reason   string
		want     string
	}{
		"Istio's, and proxies are awaited":  {[]string{istioManager}, model.False, wellknown.ReasonAwaited, "Programmed=False/" + wellknown.ReasonAwaited + "@1"},
		"Istio's, and there are no proxies": {[]string{istioManager}, model.Unknown, wellknown.ReasonNoProxies, "Programmed=Unknown/" + wellknown.ReasonNoProxies + "@1"},
		"this mesh's":                       {[]string{fieldManager}, model.False, wellknown.ReasonAwaited, "Programmed=True/Programmed@1"},
		"this mesh's after Istio's":         {[]string{istioManager, fieldManager}, model.False, wellknown.ReasonAwaited, "Programmed=True/Programmed@1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.writer.Mesh.DomainSuffix, r.writer.Mesh.ServeIstioWaypoints = "cluster.local", true
			r.say(replica.Verdict{Status: c.status, Reason: c.reason, Message: "node n1 is awaited"})
			gw := &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "istio-waypoint", Listeners: []gatewayv1.Listener{tunnel}}}
			gw.Status.Conditions = []metav1.Condition{{Type: wellknown.Deployed, Status: metav1.ConditionTrue, Reason: "Deployed", Message: "the deployer's"}}
			r.put(shopGateway, "g1", 1, gw, map[string]any{"conditions": []any{
				map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": int64(1)},
				map[string]any{"type": "Programmed", "status": "True", "reason": "Programmed", "message": "earlier", "observedGeneration": int64(1)},
			}}, inForce)
			o, err := r.client.Tracker().Get(resource["Gateway"], shopGateway.Namespace, shopGateway.Name)
			if err != nil {
				t.Fatal(err)
			}
			u := o.(*unstructured.Unstructured).DeepCopy()
			var entries []metav1.ManagedFieldsEntry
			for _, manager := range c.managers {
				entries = append(entries, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "gateway.networking.k8s.io/v1", FieldsType: "FieldsV1",
					FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{"k:{\"type\":\"Programmed\"}":{"f:status":{}}}}}`)}})
			}
			u.SetManagedFields(entries)
			if err := r.client.Tracker().Update(resource["Gateway"], u, shopGateway.Namespace); err != nil {
				t.Fatal(err)
			}
			r.lead()
			r.eventually("the status is written", func() bool { return r.writes.Load() > 0 })
			r.idle()
			if got, _ := r.status(shopGateway); got != "Accepted=True/Accepted@1 "+c.want {
				t.Error(got)
			}
		})
	}
}

// As in Istio, the name of a waypoint's class is enough.
func TestAGatewayOfAClassWithoutAnObjectIsSpokenOf(t *testing.T) {
	r := newRig(t)
	r.put(shopGateway, "g1", 1, &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "lateen-waypoint", Listeners: []gatewayv1.Listener{{Name: "mesh", Protocol: "HBONE", Port: 15008}}}}, map[string]any{}, inForce)
	r.lead()
	r.comes(shopGateway, "Accepted=True/Accepted@1 Programmed=True/Programmed@1")
}
