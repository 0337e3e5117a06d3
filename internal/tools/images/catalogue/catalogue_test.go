package catalogue

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../../.."

func TestEveryImageIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, image := range All() {
		if seen[image.Name] || !regexp.MustCompile(`^[a-z][a-z-]+$`).MatchString(image.Name) {
			t.Errorf("%s: twice, or no name for a repository", image.Name)
		}
		seen[image.Name] = true
		if image.Title == "" || image.Licences == "" || image.MostMB == 0 || len(image.Entrypoint) == 0 {
			t.Errorf("%s lacks title, licences, size or entry point", image.Name)
		}
		if !regexp.MustCompile(`^\d+$`).MatchString(image.User) {
			t.Errorf("%s runs as %q: Kubernetes checks runAsNonRoot by number", image.Name, image.User)
		}
		for _, file := range image.Files {
			if _, err := os.Stat(filepath.Join(root, file.From)); err != nil {
				t.Errorf("%s: %v", image.Name, err)
			}
			if !strings.Contains(strings.Join(image.Entrypoint, " "), file.At) {
				t.Errorf("%s has %s and does not start it", image.Name, file.At)
			}
		}
		if found, ok := Find(image.Name); !ok || found.Title != image.Title {
			t.Errorf("%s is not found", image.Name)
		}
	}
	if _, found := Find("control2"); found {
		t.Error("an image that is none is found")
	}
}

// Who runs as root is a decision for each image, written down beside it.
func TestOnlyWhatMustRunsAsRoot(t *testing.T) {
	for _, image := range All() {
		must := image.Name == "agent" || image.Name == "proxy"
		if root := image.User == "0"; root != must {
			t.Errorf("%s runs as %s", image.Name, image.User)
		}
	}
}
