package cli

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// showConnections writes the connections of a node's proxy, or of a waypoint's pod. A name alone is a node's; it is a pod's if there is no such node.
func (cmds proxyCommands) showConnections(ctx context.Context, part configPart, target, namespace string, format printer.Format) error {
	kind, pod, isKind := strings.Cut(target, "/")
	switch {
	case !isKind:
		pod = target
	case kind == "pod", kind == "pods", kind == "po":
		return cmds.showClients(ctx, pod, namespace, format)
	default:
		return usagef("%s: use a node's name, or pod/NAME of a waypoint", target)
	}
	err := cmds.showPart(ctx, part, target, namespace, format)
	var missing *api.Error
	if !errors.As(err, &missing) || missing.Code != http.StatusNotFound {
		return err
	}
	if _, none := cmds.app.client().Get(ctx, api.GetRequest{Kind: "Pod", Namespace: cmp.Or(namespace, "default"), Name: pod}); none != nil {
		return err
	}
	return cmds.showClients(ctx, pod, namespace, format)
}

// showClients writes the connections of the clients of a waypoint's pod.
func (cmds proxyCommands) showClients(ctx context.Context, pod, namespace string, format printer.Format) error {
	namespace = cmp.Or(namespace, "default")
	list, truncated, err := cmds.app.client().WaypointConnections(ctx, namespace, pod, api.ConnectionFilter{})
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.ClientConnection{}
	}
	if format.Structured() {
		return printer.Write(cmds.app.Stdout, format, map[string]any{"pod": pod, "namespace": namespace, "connections": list, "truncated": truncated})
	}
	if len(list) == 0 {
		cmds.app.warn("pod %s/%s has no connections", namespace, pod)
		return nil
	}
	view := printer.View{Wide: format == printer.Wide, Now: cmds.app.Now(), Columns: cmds.app.width()}
	if err := view.ClientConnections(cmds.app.Stdout, list); err != nil {
		return err
	}
	if truncated {
		cmds.app.warn("pod %s/%s has more connections than the %d that it lists", namespace, pod, len(list))
	}
	return nil
}
