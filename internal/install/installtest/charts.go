// Package installtest has what tests of installations share: the charts with few definitions, since reading two megabytes of schemas takes
// longer than all else. It has no behaviour of its own.
package installtest

import (
	"io/fs"
	"strings"
	"sync"
	"testing/fstest"

	"lateen.dev/lateen/charts"
)

// kept are the definitions that tests name.
var kept = []string{"authorizationpolicies.", "serviceentries.", "/gatewayclasses.", "/validatingadmissionpolicy"}

// Charts are the charts with these definitions alone.
var Charts = sync.OnceValue(func() fs.FS {
	out := fstest.MapFS{}
	err := fs.WalkDir(charts.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if strings.HasPrefix(path, "lateen-crds/files/") && !anyIn(path, kept) {
			return nil
		}
		data, err := fs.ReadFile(charts.FS, path)
		out[path] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return out
})

func anyIn(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
