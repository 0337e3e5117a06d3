package listenerstore

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Ledgers are read and removed in their folder alone, whatever a proxy that was taken over puts there or in its place.
func TestLedgersLeadNowhereElse(t *testing.T) {
	r := start(t)
	record := make([]byte, recordLength)
	record[0], record[1] = recordOpen, 1
	binary.LittleEndian.PutUint64(record[8:], r.pod.ID().Inode)
	victim := t.TempDir()
	file, ledgers := filepath.Join(victim, "file"), filepath.Join(filepath.Dir(r.path), "ledgers")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stays := func() {
		t.Helper()
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("a file of somebody else's: %v", err)
		}
	}
	must(os.WriteFile(file, record, 0o600))
	must(os.Symlink(victim, ledgers))
	r.connect()
	r.nothingLost("the folder is a link")
	stays()

	must(os.Remove(ledgers))
	must(os.Mkdir(ledgers, 0o700))
	must(os.Symlink(file, filepath.Join(ledgers, "link")))
	must(os.Mkdir(filepath.Join(ledgers, "folder"), 0o700))
	must(unix.Mkfifo(filepath.Join(ledgers, "fifo"), 0o600))
	must(os.WriteFile(filepath.Join(ledgers, "1-1"), record, 0o600))
	r.connect()
	r.lostOne()
	stays()
	if _, err := os.Stat(filepath.Join(ledgers, "1-1")); err == nil {
		t.Error("what was reported is still there")
	}
	r.connect()
	r.nothingLost("it was reported")
}

// A proxy of which the kernel does not tell whether it lives may have its ledger mapped.
func TestAReportedLedgerIsEmptiedAndNotShortened(t *testing.T) {
	fd, err := unix.MemfdCreate("ledger", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b := make([]byte, 3*recordLength)
	b[recordLength], b[recordLength+1] = recordOpen, 1
	if _, err := unix.Pwrite(fd, b, 0); err != nil {
		t.Fatal(err)
	}
	s := &session{ledgers: []descriptor{descriptor(fd)}, pods: map[uint64]string{}}
	if lost := s.lost(); len(lost) != 1 {
		t.Fatalf("%d connections were lost, want 1", len(lost))
	}
	s.void()
	if lost := s.lost(); len(lost) != 0 {
		t.Errorf("reported again: %v", lost)
	}
	if left := contents(descriptor(fd), maxLedger); len(left) != len(b) {
		t.Errorf("%d bytes are left of %d", len(left), len(b))
	}
}
