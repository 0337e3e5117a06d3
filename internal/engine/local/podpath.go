package local

import (
	"os"
	"path/filepath"
)

// podPath is the PATH of the pods: the caller's directories that every user can reach, then the usual ones.
func podPath(callers string) string {
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	var path string
	seen := map[string]bool{}
	for _, dir := range append(filepath.SplitList(callers), filepath.SplitList(usual)...) {
		if seen[dir] || !filepath.IsAbs(dir) || !reachable(dir) {
			continue
		}
		seen[dir] = true
		if path != "" {
			path += ":"
		}
		path += dir
	}
	return path
}

// reachable says whether any user may enter a directory.
func reachable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
