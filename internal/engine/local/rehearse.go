package local

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
)

// serveApply applies documents. After a dry run it adds what the control plane would say of the objects.
func (u *userObjects) serveApply(ctx context.Context, r api.ApplyRequest) (any, error) {
	res, made := u.apply(r)
	if r.DryRun {
		rehearse(ctx, &res, made, judgeDocuments)
	}
	return res, nil
}

// rehearse asks the control plane what it would say of objects that were not stored, and writes that into the results of the dry run.
func rehearse(ctx context.Context, res *api.ApplyResult, made []*stored, judge func(context.Context, []byte) ([]byte, error)) {
	if len(made) == 0 {
		return
	}
	said, err := rehearsed(ctx, made, judge)
	if err != nil {
		res.Unasked = err.Error()
		return
	}
	for i, o := range made {
		if s, ok := said[o.Key]; ok {
			res.Results[i].Conditions, res.Results[i].Findings = s.Conditions, s.Findings
		}
	}
}

func rehearsed(ctx context.Context, made []*stored, judge func(context.Context, []byte) ([]byte, error)) (map[model.Key]controlObject, error) {
	var documents bytes.Buffer
	for _, o := range made {
		text, err := yaml.Marshal(o.live)
		if err != nil {
			return nil, err
		}
		documents.WriteString("---\n")
		documents.Write(text)
	}
	page, err := judge(ctx, documents.Bytes())
	if err != nil {
		return nil, err
	}
	var answer struct {
		Objects []controlObject `json:"objects"`
	}
	if err := json.Unmarshal(page, &answer); err != nil {
		return nil, fmt.Errorf("its judgement cannot be read: %w", err)
	}
	said := map[model.Key]controlObject{}
	for _, o := range answer.Objects {
		said[o.key()] = o
	}
	return said, nil
}

// judgeDocuments has the control plane judge documents as if they were applied. A control plane that hangs must not take the dry run with it.
func judgeDocuments(ctx context.Context, documents []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTimeout)
	defer cancel()
	return send(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", controlDebug)
	}, http.MethodPost, "http://"+controlDebug+"/debug/analysis", bytes.NewReader(documents))
}
