package redirect

import (
	"testing"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// What it costs to capture and release a pod, and to find a captured pod in order.
func BenchmarkApply(b *testing.B) {
	ns := netnstest.New(b)
	b.Run("capture and release", func(b *testing.B) {
		for b.Loop() {
			for _, mode := range []Mode{Capturing, Absent} {
				if _, err := Apply(ns, mode, Settings{}); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	if _, err := Apply(ns, Capturing, Settings{}); err != nil {
		b.Fatal(err)
	}
	b.Run("in order", func(b *testing.B) {
		for b.Loop() {
			if changed, err := Apply(ns, Capturing, Settings{}); err != nil || changed {
				b.Fatal(changed, err)
			}
		}
	})
}
