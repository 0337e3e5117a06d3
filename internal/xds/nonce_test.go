package xds

import "testing"

func TestNonceReadsBackWhatItWrote(t *testing.T) {
	want := Nonce{Epoch: "0a1b2c3d", Generation: 18446744073709551615, Chunk: 7}
	got, err := ParseNonce(want.String())
	if err != nil || got != want {
		t.Errorf("ParseNonce(%q) = %v, %v", want.String(), got, err)
	}
}

func TestNonceRefusesAnythingElse(t *testing.T) {
	for _, s := range []string{"", ".", "..", "e.1", "e.1.2.3", ".1.2", "e.x.2", "e.1.x", "e.-1.2", "e.1.18446744073709551616"} {
		if n, err := ParseNonce(s); err == nil {
			t.Errorf("ParseNonce(%q) = %v, want an error", s, n)
		}
	}
}

func FuzzNonce(f *testing.F) {
	f.Add("e.1.2")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNonce(s)
		if err != nil {
			return
		}
		again, err := ParseNonce(n.String())
		if err != nil || again != n {
			t.Errorf("%q reads as %v and then as %v, %v", s, n, again, err)
		}
	})
}
