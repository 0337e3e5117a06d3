package listenerstore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The layout of a ledger: records of 64 bytes, one for each open connection; proto/lateen/listener_store.proto names it and the
// proxy writes it. Numbers are little-endian.
const (
	recordLength = 64
	maxLedger    = 4 << 20
	recordOpen   = 1

	// Limits for ledgers that proxies left: more files than one proxy makes, and as many connections as one ledger has.
	maxOrphans  = 256
	maxOrphaned = maxLedger / recordLength
)

// Direction is a connection's direction as the pod sees it.
type Direction string

// Directions.
const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Lost is a connection that a proxy had open when it was killed.
type Lost struct {
	Pod         string // namespace and name
	Direction   Direction
	Source      netip.AddrPort
	Destination netip.AddrPort // the address that the client dialled
	Since       time.Time

	inode uint64
}

// String names both ends.
func (l Lost) String() string {
	return fmt.Sprintf("%s %s to %s, open since %s", l.Direction, l.Source, l.Destination, l.Since.UTC().Format(time.RFC3339))
}

// readLedger finds the open connections in a ledger. It skips invalid records: the process was killed as it wrote them.
func readLedger(b []byte) []Lost {
	var lost []Lost
	for ; len(b) >= recordLength; b = b[recordLength:] {
		if b[0] != recordOpen {
			continue
		}
		l := Lost{inode: binary.LittleEndian.Uint64(b[8:])}
		switch b[1] {
		case 1:
			l.Direction = Inbound
		case 2:
			l.Direction = Outbound
		default:
			continue
		}
		address := func(at, port int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[at:at+16])).Unmap(), binary.LittleEndian.Uint16(b[port:]))
		}
		l.Source, l.Destination = address(16, 48), address(32, 50)
		seconds := binary.LittleEndian.Uint64(b[56:])
		const year10000 = 253402300800 // later times cannot be written
		l.Since = time.Unix(int64(min(seconds, year10000-1)), 0)
		lost = append(lost, l)
	}
	return lost
}

// lost reads the connections that the proxy had open. Call it when the process has ended.
func (s *session) lost() []Lost {
	var all []Lost
	for _, ledger := range s.ledgers {
		all = append(all, readLedger(contents(ledger, maxLedger))...)
	}
	for i := range all {
		all[i].Pod = cmp.Or(s.pods[all[i].inode], fmt.Sprintf("in network namespace %d", all[i].inode))
	}
	return all
}

// void writes zeros over the ledgers after their connections are reported. The files keep their length, as welcomeMessage
// promises: a process that has mapped a file dies when it reads a page beyond the file's end.
func (s *session) void() {
	for _, ledger := range s.ledgers {
		b := contents(ledger, maxLedger)
		clear(b)
		_, _ = unix.Pwrite(int(ledger), b, 0)
	}
}

// orphaned reads and removes the ledgers that no process has open: their proxies were killed while no agent ran. A proxy locks
// its ledger, and every process with its descriptor shares the lock.
func (s *Server) orphaned() []Lost {
	if s.opts.Ledgers == "" {
		return nil
	}
	// A proxy may write beside the folder. An attacker in its place could link the name to any folder of the node.
	at, err := unix.Open(s.opts.Ledgers, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // no proxy has made it yet
	}
	folder := os.NewFile(uintptr(at), s.opts.Ledgers)
	defer folder.Close()
	names, _ := folder.Readdirnames(maxOrphans) // after an error, the names that were read count
	var all []Lost
	for _, name := range names {
		if len(all) < maxOrphaned {
			all = append(all, takeOrphan(at, name)...)
		}
	}
	for i := range all {
		all[i].Pod = fmt.Sprintf("in network namespace %d", all[i].inode)
		if pod, ok := s.opts.PodIn(all[i].inode); ok {
			all[i].Pod = pod.Namespace + "/" + pod.Name
		}
	}
	return all
}

// takeOrphan reads and removes one ledger of the folder, unless a process has it open.
func takeOrphan(folder int, name string) []Lost {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	_ = unix.Unlinkat(folder, name, 0)
	return readLedger(contents(descriptor(fd), maxLedger))
}

// group is the lost connections of one pod, as the log shows them.
type group struct {
	pod   string
	count int
	some  []string
}

func byPod(lost []Lost) []group {
	const named = 10 // of each pod, so that a log line stays short
	var groups []group
	for _, l := range lost {
		i := slices.IndexFunc(groups, func(g group) bool { return g.pod == l.Pod })
		if i < 0 {
			i, groups = len(groups), append(groups, group{pod: l.Pod})
		}
		groups[i].count++
		if len(groups[i].some) < named {
			groups[i].some = append(groups[i].some, l.String())
		}
	}
	return groups
}
