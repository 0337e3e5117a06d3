// Package statefile owns what happens to a file of state that cannot be read: it is set aside, so that nothing stops and nothing is lost.
// It does not know what is in such a file, nor which files may be set aside; a key never may.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// SetAside renames what is at path, whatever it is, and returns where it is now. An earlier one that was set aside stays.
func SetAside(path string, now time.Time) (string, error) {
	base := path + ".damaged-" + now.UTC().Format("20060102T150405Z")
	for i := range 100 {
		to := base
		if i > 0 {
			to = fmt.Sprintf("%s.%d", base, i)
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Rename(path, to); err != nil {
			return "", fmt.Errorf("set %s aside: %w", path, err)
		}
		return to, nil
	}
	return "", fmt.Errorf("set %s aside: %s and a hundred more exist; remove them", path, base)
}
