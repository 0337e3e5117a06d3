package kube

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// Log takes what the client library says to itself into the program's log, as debugging: whatever of it matters to people, the mesh's
// programs say in their own words. Call it once, before the first client.
func Log(logger *slog.Logger) {
	klog.SetSlogLogger(slog.New(debugging{logger.Handler()}))
}

// debugging has everything at level debug.
type debugging struct{ slog.Handler }

func (d debugging) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d debugging) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	r.Message = "kube: " + r.Message
	return d.Handler.Handle(ctx, r)
}

func (d debugging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugging{d.Handler.WithAttrs(attrs)}
}

func (d debugging) WithGroup(name string) slog.Handler { return debugging{d.Handler.WithGroup(name)} }
