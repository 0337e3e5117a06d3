package waypoint

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model/wellknown"
)

func serviceAccount(gw *gatewayv1.Gateway) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: object(gw, gw.Name)}
}

func selector(gw *gatewayv1.Gateway) map[string]string {
	return map[string]string{wellknown.GatewayName: gw.Name}
}

// service has the ports of Istio's waypoints: that of readiness, and one for each listener.
func service(gw *gatewayv1.Gateway) *corev1.Service {
	meta := object(gw, gw.Name)
	if _, chosen := meta.Annotations[wellknown.TrafficDistribution]; !chosen {
		// Node proxies prefer a waypoint of their own zone.
		meta.Annotations[wellknown.TrafficDistribution] = "PreferClose"
	}
	dual := corev1.IPFamilyPolicyPreferDualStack
	return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &dual, Selector: selector(gw), Ports: servicePorts(gw),
	}}
}

// maxPortName is the longest name of a Service's port.
const maxPortName = 63

func servicePorts(gw *gatewayv1.Gateway) []corev1.ServicePort {
	port := func(name string, number int32, protocol string) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: corev1.ProtocolTCP, AppProtocol: &protocol}
	}
	ports := []corev1.ServicePort{port("status-port", ReadyPort, "tcp")}
	names, numbers := map[string]bool{"status-port": true}, map[int32]bool{ReadyPort: true}
	for _, l := range gw.Spec.Listeners {
		number := int32(l.Port)
		if numbers[number] {
			continue
		}
		numbers[number] = true
		name := strings.ReplaceAll(string(l.Name), ".", "-")
		if len(name) > maxPortName {
			name = strings.TrimRight(name[:maxPortName], "-")
		}
		if names[name] {
			// Listeners' names may differ where those of ports cannot; numbers differ.
			suffix := fmt.Sprintf("-%d", number)
			name = name[:min(len(name), maxPortName-len(suffix))] + suffix
		}
		names[name] = true
		protocol := strings.ToLower(string(l.Protocol))
		if number == HBONEPort {
			protocol = "hbone"
		}
		ports = append(ports, port(name, number, protocol))
	}
	return ports
}

// autoscaler and budget are made only where a ConfigMap asks for them, and are what its overlay begins with.
func autoscaler(gw *gatewayv1.Gateway) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}, ObjectMeta: object(gw, gw.Name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: gw.Name}, MaxReplicas: 1}}
}

func budget(gw *gatewayv1.Gateway) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: object(gw, gw.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector(gw)}}}
}
