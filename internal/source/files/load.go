package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// unfit says why something is not read although it has a manifest's name: it would keep its reader waiting, or never end.
type unfit struct{ reason, fix string }

func (u *unfit) Error() string { return u.reason }

// refuse looks at what is to be read. Its errors are of type *unfit.
func refuse(info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return &unfit{reason: fmt.Sprintf("is a %s, not a file", kindOf(info.Mode())), fix: "replace it by a file, or give it a name without .yaml, .yml or .json"}
	case info.Size() > maxFile:
		return tooLarge
	}
	return nil
}

var tooLarge = &unfit{reason: fmt.Sprintf("is larger than %d MiB", maxFile>>20), fix: "split it into several files"}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// load reads a file whole. It is looked at again once it is open, without waiting for that: it may have been replaced since.
func load(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := refuse(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = tooLarge // it grew meanwhile
	}
	return data, err
}
