package dataplanes

import "testing"

func TestHandshakesAreCountedWhereTheyBegin(t *testing.T) {
	page := `# TYPE lateen_tunnels_opened counter
lateen_tunnels_opened_total{reporter="source"} 5
lateen_tunnels_opened_total{reporter="destination"} 70
`
	if n, err := handshakes([]byte(page)); err != nil || n != 5 {
		t.Errorf("got %d, %v, want 5", n, err)
	}
	if n, err := handshakes(nil); err != nil || n != 0 {
		t.Errorf("of a proxy that has opened none: got %d, %v", n, err)
	}
	if _, err := handshakes([]byte("<html>")); err == nil {
		t.Error("a page that is no metrics was read")
	}
}
