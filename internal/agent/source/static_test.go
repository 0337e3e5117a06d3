package source

import "testing"

func TestOnlyAStaticPodHasTwoUIDs(t *testing.T) {
	const uid, other, hash = "0a1b2c3d-1111-2222-3333-444455556666", "0a1b2c3d-1111-2222-3333-444455557777", "0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct {
		hash, mirror, want string
	}{
		"an ordinary pod":                      {"", "", uid},
		"a mirror of a static pod":             {hash, hash, hash},
		"a pod that wants to be another":       {other, "", uid},
		"a mirror that wants to be another":    {other, other, uid},
		"a pod that wants to be a static pod":  {hash, "", uid},
		"a mirror of something else":           {hash, other, uid},
		"a mirror whose hash is no kubelet's":  {hash + "0", hash + "0", uid},
		"a mirror whose hash has a line after": {hash + "\n", hash + "\n", uid},
	} {
		annotations := map[string]string{"other": "x"}
		for key, value := range map[string]string{ConfigHash: tt.hash, ConfigMirror: tt.mirror} {
			if value != "" {
				annotations[key] = value
			}
		}
		if got := RuntimeUID(uid, annotations); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	if got := RuntimeUID(uid, nil); got != uid {
		t.Errorf("without annotations: %s", got)
	}
}
