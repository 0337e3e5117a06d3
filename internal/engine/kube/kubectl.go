package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// toKubectl answers a request with the kubectl command that does the same.
func toKubectl[R any](what string, command func(R) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in R
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in); err != nil {
			fail(w, &api.Error{Code: http.StatusBadRequest, Message: "read the request: " + err.Error()})
			return
		}
		fail(w, kubectl(what, command(in)))
	}
}

// maxRequest bounds the body of a request that kubectl should answer, in bytes.
const maxRequest = 64 << 20

func kubectl(what, command string) error {
	return &api.Error{Code: http.StatusNotImplemented, Message: what, Fix: command}
}

func kubectlApply(r api.ApplyRequest) string {
	switch {
	case r.Diff:
		return "kubectl diff" + inNamespace(r.Namespace) + files(r.Documents)
	case r.DryRun:
		return "kubectl apply --dry-run=server" + inNamespace(r.Namespace) + files(r.Documents)
	}
	return "kubectl apply" + inNamespace(r.Namespace) + files(r.Documents)
}

func kubectlDelete(r api.DeleteRequest) string {
	flags := ""
	if r.DryRun {
		flags += " --dry-run=server"
	}
	if r.GraceSeconds != nil {
		flags += fmt.Sprintf(" --grace-period=%d", *r.GraceSeconds)
	}
	if len(r.Keys) == 0 {
		return "kubectl delete" + inNamespace(r.Namespace) + flags + files(r.Documents)
	}
	command := "kubectl delete" + inNamespace(r.Keys[0].Namespace) + flags
	for _, k := range r.Keys {
		command += " " + object(k)
	}
	return command
}

func kubectlLogs(q url.Values) string {
	command := "kubectl logs " + cmp.Or(q.Get("target"), "POD") + inNamespace(q.Get("namespace"))
	for name, flag := range map[string]string{"follow": " -f", "previous": " --previous", "timestamps": " --timestamps"} {
		if q.Get(name) == "true" {
			command += flag
		}
	}
	for _, valued := range []struct{ name, flag string }{{"container", "-c "}, {"tail", "--tail="}, {"since", "--since-time="}} {
		if v := q.Get(valued.name); v != "" {
			command += " " + valued.flag + v
		}
	}
	return command + "; lateen logs shows those of proxy/NODE, agent/NODE and control"
}

// kubectlPatch is the command for a patch that is not of labels alone.
func kubectlPatch(r api.PatchRequest) string {
	flags := inNamespace(r.Key.Namespace)
	if r.DryRun {
		flags += " --dry-run=server"
	}
	var patch struct {
		Metadata struct {
			Annotations map[string]*string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Replicas *int `json:"replicas"`
			Template struct {
				Metadata struct {
					Annotations map[string]*string `json:"annotations"`
				} `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	if json.Unmarshal(r.Patch, &patch) != nil {
		return "kubectl edit " + object(r.Key) + inNamespace(r.Key.Namespace)
	}
	switch {
	case patch.Spec.Replicas != nil:
		return fmt.Sprintf("kubectl scale %s%s --replicas=%d", object(r.Key), flags, *patch.Spec.Replicas)
	case patch.Spec.Template.Metadata.Annotations[api.RestartedAt] != nil:
		return "kubectl rollout restart " + object(r.Key) + flags
	case len(patch.Metadata.Annotations) > 0:
		command := "kubectl annotate --overwrite " + object(r.Key) + flags
		for _, name := range slices.Sorted(maps.Keys(patch.Metadata.Annotations)) {
			if value := patch.Metadata.Annotations[name]; value == nil {
				command += " " + name + "-"
			} else {
				command += " " + quoted(name+"="+*value)
			}
		}
		return command
	}
	return "kubectl edit " + object(r.Key) + inNamespace(r.Key.Namespace)
}

// object names an object as kubectl wants it.
func object(k api.Key) string { return k.Word() + "/" + k.Name }

func inNamespace(namespace string) string {
	if namespace == "" || namespace == metav1.NamespaceDefault {
		return ""
	}
	return " -n " + namespace
}

// files are the -f flags for documents.
func files(documents []api.Document) (flags string) {
	for _, d := range documents {
		flags += " -f " + quoted(d.File)
	}
	return cmp.Or(flags, " -f FILE")
}

// quoted is a word for a POSIX shell.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t\n'\"\\$`&|;<>()*?[]#~!{}") || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// since is the time of a request for a log; nil if it names none.
func since(q url.Values) *metav1.Time {
	at, err := time.Parse(time.RFC3339Nano, q.Get("since"))
	if err != nil {
		return nil
	}
	t := metav1.NewTime(at)
	return &t
}
