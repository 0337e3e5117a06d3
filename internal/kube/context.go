package kube

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Quiet returns a context that drops client-go's own log lines, which repeat what the caller logs.
func Quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(slog.DiscardHandler))
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
