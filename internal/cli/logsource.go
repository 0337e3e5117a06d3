package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// logSource is one log among those that a command shows.
type logSource struct {
	name       string // as the user knows it
	prefix     string // of each line; empty for none
	part, node string // a part of the mesh in place of a pod, see api.Client.PartLog
	request    api.LogsRequest
}

// selectedLogs are the logs of the pods that a selector chooses.
func (cmds podCommands) selectedLogs(ctx context.Context, o logsOptions) ([]logSource, error) {
	list, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: "Pod", Namespace: cmds.app.namespace, Selector: o.selector})
	if err != nil {
		return nil, err
	}
	var sources []logSource
	for _, object := range list.Items {
		var pod corev1.Pod
		if err := json.Unmarshal(object.Raw, &pod); err != nil {
			return nil, fmt.Errorf("read %s: %w", object.Key, err)
		}
		container := o.request.Container
		if container == "" && len(pod.Spec.Containers) > 0 {
			container = pod.Spec.Containers[0].Name
		}
		s := logSource{name: "pod/" + pod.Name, prefix: strings.TrimSuffix("[pod/"+pod.Name+"/"+container, "/") + "] ", request: o.request}
		s.request.Target = "pod/" + pod.Name
		sources = append(sources, s)
	}
	return sources, nil
}

// open begins to read a log.
func (s logSource) open(ctx context.Context, client *api.Client) (io.ReadCloser, error) {
	if s.part != "" {
		return client.PartLog(ctx, s.part, s.node, s.request)
	}
	return client.Logs(ctx, s.request)
}

// showLogs writes logs one after the other or, while they are followed, line by line as they come. A log that cannot be read costs
// none of the others.
func (cmds podCommands) showLogs(ctx context.Context, sources []logSource, follow bool) error {
	client := cmds.app.client()
	if len(sources) == 1 {
		return cmds.showLog(ctx, client, sources[0], cmds.app.Stdout)
	}
	out := &lines{w: cmds.app.Stdout}
	errs := make([]error, len(sources))
	var group sync.WaitGroup
	for i, s := range sources {
		if !follow {
			errs[i] = cmds.showLog(ctx, client, s, out)
			continue
		}
		group.Go(func() { errs[i] = cmds.showLog(ctx, client, s, out) })
	}
	group.Wait()
	failed := 0
	for i, err := range errs {
		var refusal *api.Error
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil, errors.As(err, &refusal) && refusal.Code == http.StatusNotImplemented, errors.Is(err, api.ErrNotRunning):
			return err
		}
		failed++
		cmds.app.warn("%s: %v", sources[i].name, err)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d logs could not be read", failed, len(sources))
	}
	return nil
}

// showLog writes one log.
func (cmds podCommands) showLog(ctx context.Context, client *api.Client, s logSource, w io.Writer) error {
	stream, err := s.open(ctx, client)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	if s.prefix == "" {
		_, err = io.Copy(w, stream)
	} else {
		err = prefixed(w, stream, s.prefix)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the log of %s: %w", s.name, err)
	}
	return nil
}

// prefixed copies lines and writes each with a prefix, in one piece.
func prefixed(w io.Writer, r io.Reader, prefix string) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			if _, err := io.WriteString(w, prefix+strings.TrimSuffix(line, "\n")+"\n"); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lines is a writer that several logs share: a Write is not interrupted by another one.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
