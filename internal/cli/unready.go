package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// finding is what one look at the objects that are waited for tells.
type finding struct {
	waiting []string    // what is not as it should be yet
	refused []string    // what proxies refuse, and what is waited for by name and the control plane refuses
	silent  string      // why no control plane answers, if none does: what is refused is what it has left in the cluster
	unknown doubts      // what they may refuse without keeping anybody waiting
	ready   readyCounts // objects that are waited for, their pods and the node proxies
	// causes is why pods of deployments that are waited for are not ready.
	causes []string
	// unscheduled is why pods of deployments cannot be made and pods have no node, each with its object. It often needs the user's help.
	unscheduled []string
	// crashed is a pod among those waited for of which a container ran and ended; empty if there is none.
	crashed crash
	// named is what configures the mesh and is waited for by name, as it is written.
	named map[api.Key]json.RawMessage
	// pods are those asked for and those of what was asked for, by namespace and name, but for those that have finished.
	pods map[string]bool
}

// unready says what is not as it should be yet among the objects asked for.
//
// A proxy acknowledges what it refuses, too, so the objects are looked at twice: before the acknowledgements, because what is accepted
// then is in what they are about, and after, because what is refused is said by then.
func unready(ctx context.Context, client *api.Client, requests []api.GetRequest) (finding, error) {
	before, err := survey(ctx, client, requests)
	if err != nil {
		return finding{}, err
	}
	waiting, proxies, err := unsettled(ctx, client, before.pods, len(before.waiting) == 0)
	if err != nil {
		return finding{}, err
	}
	before.waiting = append(before.waiting, waiting...)
	if len(before.waiting) > 0 {
		return before, nil
	}
	after, err := survey(ctx, client, requests)
	if err != nil {
		return finding{}, err
	}
	after.ready[nodeProxies] = proxies
	after.waiting = append(after.waiting, after.newSince(before)...)
	return after, nil
}

// crash is a pod of which a container ended, and that container if the pod's log is another one's by default.
type crash struct {
	api.Key
	container string
}

// crashedContainer is the first container of a pod that ended; empty if that is the first of its spec, whose log is the pod's.
func crashedContainer(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if _, ended := containerTrouble(c); ended {
			if len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].Name == c.Name {
				return ""
			}
			return c.Name
		}
	}
	return ""
}

// newSince says what came into a finding after an earlier one, so that the acknowledgements between them are not about it.
func (f finding) newSince(earlier finding) (out []string) {
	for key, raw := range f.named {
		if !bytes.Equal(raw, earlier.named[key]) {
			out = append(out, calledBy(key)+" (changed just now)")
		}
	}
	for pod := range f.pods {
		if !earlier.pods[pod] {
			_, name, _ := strings.Cut(pod, "/")
			out = append(out, "pod/"+name+" (made just now)")
		}
	}
	slices.Sort(out)
	return out
}

// survey reads the objects asked for and their pods.
func survey(ctx context.Context, client *api.Client, requests []api.GetRequest) (finding, error) {
	chosen := chosen{keys: map[api.Key]bool{}, uids: map[types.UID]bool{}}
	// A proxy of few words would hold up everybody, so what is not asked for by name does not wait for more of them.
	f := finding{unknown: doubts{}, ready: readyCounts{}, named: map[api.Key]json.RawMessage{}, pods: map[string]bool{}}
	for _, request := range requests {
		configures := slices.Contains(partial, request.Kind)
		if configures && request.Name == "" && len(f.waiting) > 0 && f.silent == "" {
			continue // there will be another look
		}
		list, err := client.Get(ctx, request)
		if err != nil {
			return finding{}, err
		}
		f.heard(list)
		for _, object := range list.Items {
			f.judge(object, configures && request.Name != "")
			switch {
			case configures && request.Name == "":
				continue // one that has no effect, and says so, keeps nobody waiting
			case configures:
				switch state, why := printer.State(object); state {
				case printer.StateUnknown, printer.StateIneffective:
					f.waiting = append(f.waiting, strings.TrimSuffix(calledBy(object.Key)+" ("+why+")", " ()"))
				case printer.StateRefused: // by the control plane, if not by a proxy
					f.refuse(calledBy(object.Key), why)
				}
				f.named[object.Key] = object.Raw
				f.ready[object.Key.Kind]++
				continue
			}
			uid, lacks, err := f.isReady(object)
			if err != nil {
				return finding{}, fmt.Errorf("read %s: %w", object.Key, err)
			}
			if !isNodeProxy(object) && !isEnding(object) {
				f.ready[object.Key.Kind]++
			}
			chosen.keys[object.Key] = true
			if uid != "" {
				chosen.uids[uid] = true
			}
			// Without names the pods are asked for themselves, whoever owns them.
			chosen.owners = chosen.owners || request.Kind == "Deployment" && request.Name != ""
			if lacks != "" {
				f.waiting = append(f.waiting, strings.TrimSuffix(calledBy(object.Key)+" ("+lacks+")", " (not ready)"))
			}
		}
	}
	return f, f.surveyPods(ctx, client, requests[0], chosen)
}

// chosen are objects that are waited for, their pods with them.
type chosen struct {
	keys   map[api.Key]bool
	uids   map[types.UID]bool // a name may be that of what was there before, or of another kind's
	owners bool               // some of them own pods that are not chosen themselves
}

// surveyPods adds the pods that are among the objects or belong to one of them, and can be in a mesh. They are where the objects are.
func (f *finding) surveyPods(ctx context.Context, client *api.Client, where api.GetRequest, chosen chosen) error {
	list, err := client.Get(ctx, api.GetRequest{Kind: "Pod", Namespace: where.Namespace, AllNamespaces: where.AllNamespaces, Owners: chosen.owners})
	if err != nil {
		return err
	}
	f.heard(list)
	for _, object := range list.Items {
		var pod corev1.Pod
		if err := json.Unmarshal(object.Raw, &pod); err != nil {
			return fmt.Errorf("read %s: %w", object.Key, err)
		}
		found := chosen.keys[object.Key]
		for _, owner := range pod.OwnerReferences {
			found = found || chosen.uids[owner.UID]
		}
		for _, uid := range object.Owners {
			found = found || chosen.uids[types.UID(uid)]
		}
		if finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; found && !finished {
			f.pods[object.Key.Namespace+"/"+object.Key.Name] = true
			f.judge(object, false)
			if why := unscheduled(&pod); why != "" {
				f.unscheduled = append(f.unscheduled, calledBy(object.Key)+": "+why)
			}
			if !chosen.keys[object.Key] && !isEnding(object) {
				f.ready["Pod"]++
				if why, crashed := podTrouble(&pod); why != "" && !podReady(&pod) {
					f.causes = append(f.causes, calledBy(object.Key)+" ("+why+")")
					f.noteCrash(object.Key, &pod, crashed)
				}
			}
		}
	}
	return nil
}

// heard waits for the control plane if it said nothing of a list: what is refused is not known then.
func (f *finding) heard(list api.ObjectList) {
	if list.Unasked != "" {
		f.silent = list.Unasked
	}
	if why := "the control plane (" + list.Unasked + ")"; list.Unasked != "" && !slices.Contains(f.waiting, why) {
		f.waiting = append(f.waiting, why)
	}
}

// judge notes an object that a proxy refuses, or of which it is not known whether proxies use it. One whose own state is waited for
// is not noted again.
func (f *finding) judge(object api.Object, byState bool) {
	name := calledBy(object.Key)
	if why := printer.Refusal(object); why != "" {
		f.refuse(name, why)
	} else if why := printer.Doubt(object); why != "" && !byState {
		f.unknown.add(name, why)
	}
}

func (f *finding) refuse(name, why string) {
	if refused := name + " (" + why + ")"; !slices.Contains(f.refused, refused) {
		f.refused = append(f.refused, refused)
	}
}

// calledBy is an object as people name it to a command.
func calledBy(key api.Key) string { return key.Word() + "/" + key.Name }

// isReady returns an object's uid and the reason why it does not serve in its wanted state. The reason is empty if it does, and "not
// ready" if its status gives none.
func (f *finding) isReady(object api.Object) (types.UID, string, error) {
	if object.Key.Kind == "Deployment" {
		var d appsv1.Deployment
		if err := json.Unmarshal(object.Raw, &d); err != nil {
			return "", "", err
		}
		if why := replicaFailure(&d); why != "" {
			f.unscheduled = append(f.unscheduled, calledBy(object.Key)+": "+why)
		}
		return d.UID, deploymentTrouble(&d), nil
	}
	var pod corev1.Pod
	if err := json.Unmarshal(object.Raw, &pod); err != nil {
		return "", "", err
	}
	if podReady(&pod) {
		return pod.UID, "", nil
	}
	why, crashed := podTrouble(&pod)
	f.noteCrash(object.Key, &pod, crashed)
	return pod.UID, cmp.Or(why, "not ready"), nil
}

// isNodeProxy reports whether an object is the pod that stands for a node proxy of the local engine, which counts as a node proxy.
func isNodeProxy(object api.Object) bool {
	var pod corev1.Pod
	return object.Key.Kind == "Pod" && json.Unmarshal(object.Raw, &pod) == nil && pod.Spec.HostNetwork &&
		pod.Spec.ServiceAccountName == "ztunnel" && pod.Labels["app"] == "ztunnel"
}

// isEnding reports whether a pod is being ended. Its deployment has another one in its place.
func isEnding(object api.Object) bool {
	var pod corev1.Pod
	return object.Key.Kind == "Pod" && json.Unmarshal(object.Raw, &pod) == nil && pod.DeletionTimestamp != nil
}

func (f *finding) noteCrash(key api.Key, pod *corev1.Pod, crashed bool) {
	if crashed && f.crashed.Name == "" {
		f.crashed = crash{key, crashedContainer(pod)}
	}
}
