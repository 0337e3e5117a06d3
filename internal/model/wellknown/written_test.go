package wellknown

import "testing"

func TestPoliciesAreShownAsTheirAuthorsWroteThem(t *testing.T) {
	for wire, want := range map[string]string{
		"shop/a~f17b629b": "shop/a",
		"shop/a~f17b629b: no scope 9; shop/b~00000000: x": "shop/a: no scope 9; shop/b: x",
		`"shop/a~f17b629b"`: `"shop/a"`,
		"shop/a":            "shop/a",
		"shop/a~f17b629":    "shop/a~f17b629",
		"shop/a~f17b629b0":  "shop/a~f17b629b0",
		"shop/a~F17B629B":   "shop/a~F17B629B",
		"~/x ~f":            "~/x ~f",
	} {
		if got := Written(wire); got != want {
			t.Errorf("%s is shown as %s, want %s", wire, got, want)
		}
	}
}
