package cli

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// bridge is the answer to a command of another program that this one does not have.
type bridge struct {
	of string // the program that has the command
	// here are the commands that do the same, or come nearest; each must exist.
	here []string
	// not says that there is nothing of the kind; here then comes nearest. It is empty if here does the same.
	not string
}

const (
	istioctl = "istioctl"
	linkerd  = "linkerd"
	kubectl  = "kubectl"
)

// bridges are the words of istioctl, linkerd and kubectl that people try. One with a space is a command with its first argument.
// They are looked for only if this program has no command of that name. The first word may be one of its commands.
var bridges = map[string]bridge{
	// istioctl
	"analyze":                     {of: istioctl, here: []string{"status", "apply --dry-run"}},
	"bug-report":                  {of: istioctl, here: []string{"status -o json", "logs control", "proxy config NODE"}, not: "collects nothing into one file"},
	"create-remote-secret":        {of: istioctl, here: []string{"install"}, not: "joins no clusters"},
	"dash":                        {of: istioctl, here: []string{"top", "lab serve"}, not: "has no dashboard of the mesh; its Grafana dashboards are in the folder dashboards"},
	"dashboard":                   {of: istioctl, here: []string{"top", "lab serve"}, not: "has no dashboard of the mesh; its Grafana dashboards are in the folder dashboards"},
	"experimental":                {of: istioctl, here: []string{"status", "proxy config NODE"}, not: "has no experimental commands"},
	"experimental describe":       {of: istioctl, here: []string{"describe KIND NAME"}},
	"experimental authz":          {of: istioctl, here: []string{"proxy config policies NODE", "tap --denied"}},
	"experimental precheck":       {of: istioctl, here: []string{"check --pre"}},
	"experimental ztunnel-config": {of: istioctl, here: []string{"proxy config NODE"}},
	"experimental wait":           {of: istioctl, here: []string{"wait"}},
	"experimental metrics":        {of: istioctl, here: []string{"top"}},
	"experimental waypoint":       {of: istioctl, here: []string{"waypoint"}},
	"experimental internal-debug": {of: istioctl, here: []string{"logs control"}},
	"kube-inject":                 {of: istioctl, here: []string{"label namespace NAME istio.io/dataplane-mode=ambient"}, not: "has no sidecars to inject; a label puts pods into the mesh, and nothing restarts"},
	"manifest":                    {of: istioctl, here: []string{"install --dry-run"}},
	"operator":                    {of: istioctl, here: []string{"install"}, not: "has no operator"},
	"precheck":                    {of: istioctl, here: []string{"check --pre"}},
	"profile":                     {of: istioctl, here: []string{"install --set KEY=VALUE"}, not: "has no profiles, only values"},
	"proxy-config":                {of: istioctl, here: []string{"proxy config NODE"}},
	"proxy-status":                {of: istioctl, here: []string{"status"}},
	"ps":                          {of: istioctl, here: []string{"status"}},
	"remote-clusters":             {of: istioctl, here: []string{"status"}, not: "joins no clusters"},
	"tag":                         {of: istioctl, here: []string{"upgrade"}, not: "has no revisions: one control plane serves the cluster, and its upgrade restarts no pod"},
	"validate":                    {of: istioctl, here: []string{"apply --dry-run -f FILE"}},
	"verify-install":              {of: istioctl, here: []string{"check"}},
	"ztunnel-config":              {of: istioctl, here: []string{"proxy config NODE"}},
	"ztunnel-config workloads":    {of: istioctl, here: []string{"proxy config workloads NODE"}},
	"ztunnel-config workload":     {of: istioctl, here: []string{"proxy config workloads NODE"}},
	"ztunnel-config services":     {of: istioctl, here: []string{"proxy config services NODE"}},
	"ztunnel-config service":      {of: istioctl, here: []string{"proxy config services NODE"}},
	"ztunnel-config policies":     {of: istioctl, here: []string{"proxy config policies NODE"}},
	"ztunnel-config policy":       {of: istioctl, here: []string{"proxy config policies NODE"}},
	"ztunnel-config certificates": {of: istioctl, here: []string{"proxy config certificates NODE"}},
	"ztunnel-config certificate":  {of: istioctl, here: []string{"proxy config certificates NODE"}},
	"ztunnel-config connections":  {of: istioctl, here: []string{"proxy config connections NODE"}},
	"ztunnel-config log":          {of: istioctl, here: []string{"proxy log-level NODE"}},
	"proxy-config log":            {of: istioctl, here: []string{"proxy log-level NODE"}},
	"proxy-config secret":         {of: istioctl, here: []string{"proxy config certificates NODE"}},
	"proxy-config endpoint":       {of: istioctl, here: []string{"proxy config services NODE -o wide"}},
	"proxy-config endpoints":      {of: istioctl, here: []string{"proxy config services NODE -o wide"}},
	"proxy-config cluster":        {of: istioctl, here: []string{"proxy config services NODE"}},
	"proxy-config clusters":       {of: istioctl, here: []string{"proxy config services NODE"}},
	"proxy-config all":            {of: istioctl, here: []string{"proxy config NODE"}},

	// linkerd
	"authz":         {of: linkerd, here: []string{"proxy config policies NODE", "get authorizationpolicies"}},
	"diagnostics":   {of: linkerd, here: []string{"proxy config NODE", "logs control"}},
	"edges":         {of: linkerd, here: []string{"tap", "top connections"}},
	"identity":      {of: linkerd, here: []string{"proxy config certificates NODE", "ca status"}},
	"inject":        {of: linkerd, here: []string{"label namespace NAME istio.io/dataplane-mode=ambient"}, not: "has no sidecars to inject; a label puts pods into the mesh, and nothing restarts"},
	"jaeger":        {of: linkerd, here: []string{"tap"}, not: "has no tracing of requests"},
	"multicluster":  {of: linkerd, here: []string{"install"}, not: "joins no clusters"},
	"prune":         {of: linkerd, here: []string{"upgrade"}},
	"routes":        {of: linkerd, here: []string{"top"}, not: "knows no routes: it carries connections, not requests"},
	"stat":          {of: linkerd, here: []string{"top"}},
	"stat-inbound":  {of: linkerd, here: []string{"top"}},
	"stat-outbound": {of: linkerd, here: []string{"top"}},
	"uninject":      {of: linkerd, here: []string{"label namespace NAME istio.io/dataplane-mode-"}, not: "has no sidecars to take out; without the label pods leave the mesh, and nothing restarts"},
	"viz":           {of: linkerd, here: []string{"top", "tap"}},
	"viz dashboard": {of: linkerd, here: []string{"top", "lab serve"}, not: "has no dashboard of the mesh; its Grafana dashboards are in the folder dashboards"},
	"viz stat":      {of: linkerd, here: []string{"top"}},
	"viz edges":     {of: linkerd, here: []string{"tap", "top connections"}},

	// kubectl
	"api-versions":    {of: kubectl, here: []string{"get all -A"}},
	"attach":          {of: kubectl, here: []string{"logs TARGET -f", "exec -it TARGET -- sh"}},
	"auth":            {of: kubectl, here: []string{"get authorizationpolicies"}},
	"autoscale":       {of: kubectl, here: []string{"scale"}},
	"cluster-info":    {of: kubectl, here: []string{"status", "list"}},
	"config":          {of: kubectl, here: []string{"list"}, not: "keeps no settings; --name or LATEEN_NAME choose a mesh, --context a cluster"},
	"cordon":          {of: kubectl, here: []string{"get nodes"}, not: "closes no nodes for pods"},
	"cp":              {of: kubectl, here: []string{"exec -i TARGET -- tar"}},
	"create":          {of: kubectl, here: []string{"apply -f FILE"}},
	"debug":           {of: kubectl, here: []string{"exec -it TARGET -- sh", "logs TARGET"}},
	"drain":           {of: kubectl, here: []string{"proxy replace NODE"}, not: "drains proxies, not nodes"},
	"events":          {of: kubectl, here: []string{"status", "logs TARGET"}},
	"explain":         {of: kubectl, here: []string{"apply --dry-run -f FILE"}, not: "explains no fields; a dry run names the wrong ones"},
	"expose":          {of: kubectl, here: []string{"apply -f FILE"}},
	"patch":           {of: kubectl, here: []string{"apply -f FILE", "label", "scale"}},
	"replace":         {of: kubectl, here: []string{"apply -f FILE"}},
	"rollout history": {of: kubectl, here: []string{"describe deploy/NAME", "get pods"}, not: "keeps no earlier versions of a deployment"},
	"rollout pause":   {of: kubectl, here: []string{"rollout status deploy/NAME"}, not: "cannot pause a rollout"},
	"rollout resume":  {of: kubectl, here: []string{"rollout status deploy/NAME"}, not: "cannot pause a rollout"},
	"rollout undo":    {of: kubectl, here: []string{"apply -f FILE"}, not: "keeps no earlier versions of a deployment; apply the earlier file"},
	"run":             {of: kubectl, here: []string{"apply -f FILE"}},
	"set":             {of: kubectl, here: []string{"apply -f FILE"}},
	"taint":           {of: kubectl, here: []string{"label node NAME KEY=VALUE"}},
	"uncordon":        {of: kubectl, here: []string{"get nodes"}, not: "closes no nodes for pods"},
}

// shortForms are the other names that istioctl gives to its commands.
var shortForms = map[string]string{"x": "experimental", "exp": "experimental", "pc": "proxy-config", "zc": "ztunnel-config"}

// bridgeFor finds the answer to the words of another program, and the spelling of that program. rest are the arguments after the word.
func bridgeFor(word string, rest []string) (b bridge, known string, ok bool) {
	if long, short := shortForms[word]; short {
		word = long
	}
	if i := slices.IndexFunc(rest, func(arg string) bool { return !strings.HasPrefix(arg, "-") }); i >= 0 {
		if b, ok = bridges[word+" "+rest[i]]; ok {
			return b, word + " " + rest[i], true
		}
	}
	b, ok = bridges[word]
	return b, word, ok
}

// error is the answer to the words of another program. typed is what the user wrote.
func (b bridge) error(typed, known string) error {
	commands := make([]string, len(b.here))
	for i, command := range b.here {
		commands[i] = "`lateen " + command + "`"
	}
	are := strings.Join(commands, " and ")
	e := &api.Error{Message: fmt.Sprintf("unknown command %q", typed), Fix: fmt.Sprintf("%s's %s is %s here", b.of, known, are)}
	if b.not != "" {
		e.Fix = fmt.Sprintf("%s has %s; Lateen %s. The nearest: %s", b.of, known, b.not, are)
	}
	return usageError{e}
}

// flagBridges are the answers to flags of other programs that this one does not have.
var flagBridges = map[string]string{
	"revision":          "Lateen has no revisions: one control plane serves the cluster",
	"istioNamespace":    "--namespace of install names the namespace of the mesh's parts; the other commands find it themselves",
	"linkerd-namespace": "--namespace of install names the namespace of the mesh's parts; the other commands find it themselves",
	"cluster":           "--context chooses the cluster",
}
