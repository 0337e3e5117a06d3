package cli

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// watched is an object as it was shown last.
type watched struct {
	object    api.Object
	signature string
}

// watch shows the objects that are asked for and each change of one, until the user interrupts it or nobody reads on. The engine is
// asked again and again: the answers are whole, so a change that was missed shows in the next one.
func (cmds readCommands) watch(ctx context.Context, requests []api.GetRequest, o printer.Options, events bool, template *jsonpath.JSONPath) error {
	ctx, stop := cmds.app.untilUnread(ctx)
	defer stop()
	out := printer.NewWatch(cmds.app.Stdout, o, events, cmds.app.width)
	known := map[api.Key]watched{}
	client := cmds.app.client()
	for first := true; ; first = false {
		began := time.Now()
		objects, err := list(ctx, client, requests, !first)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			if err := out.Begin(objects); err != nil {
				return err
			}
		}
		show := func(object api.Object, change printer.Change) error {
			if template != nil {
				single := o
				single.Single = true
				return cmds.app.printPath(template, []api.Object{object}, single)
			}
			return out.Write(object, change, cmds.app.Now())
		}
		present := map[api.Key]bool{}
		for _, object := range objects {
			present[object.Key] = true
			signature, err := out.Signature(object)
			if err != nil {
				return err
			}
			last, had := known[object.Key]
			known[object.Key] = watched{object, signature}
			switch {
			case !had:
				err = show(object, printer.Added)
			case last.signature != signature:
				err = show(object, printer.Modified)
			}
			if err != nil {
				return err
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(known), func(a, b api.Key) int { return strings.Compare(a.String(), b.String()) }) {
			if present[key] {
				continue
			}
			if err := show(known[key].object, printer.Removed); err != nil {
				return err
			}
			delete(known, key)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause(time.Since(began))):
		}
	}
}

// list asks for objects. With lenient one that is not there is no error.
func list(ctx context.Context, client *api.Client, requests []api.GetRequest, lenient bool) ([]api.Object, error) {
	objects := []api.Object{}
	for _, request := range requests {
		list, err := client.Get(ctx, request)
		var refusal *api.Error
		if lenient && errors.As(err, &refusal) && refusal.Code == http.StatusNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, list.Items...)
	}
	return objects, nil
}

// width is how wide a line of output may be; 0 if it goes to no terminal.
func (a *app) width() int { return term.Columns(a.Stdout) }
