package catalogue

import "runtime"

// DebianArch is what Debian calls the architecture that this was compiled for, for which the images are made.
func DebianArch() string {
	switch runtime.GOARCH {
	case "386":
		return "i386"
	case "arm":
		return "armhf"
	case "ppc64le":
		return "ppc64el"
	}
	return runtime.GOARCH
}
