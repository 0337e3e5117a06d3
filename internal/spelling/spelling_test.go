package spelling

import "testing"

func TestNearestFindsTypingMistakes(t *testing.T) {
	candidates := []string{"port", "protocol", "targetPort", "nodePort", "name", "appProtocol", "Pod", "node", "nodes"}
	for word, want := range map[string]string{
		"prot": "port", "targetport": "targetPort", "protocl": "protocol", "nmae": "name", "xyz": "", "completelydifferent": "",
		"Podd": "Pod", "nodez": "nodes", "Foo": "", "": "",
	} {
		if got := Nearest(word, candidates); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
