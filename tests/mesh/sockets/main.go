// Command sockets says of each internet socket of a process in which network namespace it was made: one line with the
// namespace's inode, the socket's inode, its kind (tcp, udp), its state (as ss writes it; NEW: neither bound nor connected,
// which no list of the kernel's has), and its local and remote address. It takes a duplicate of each descriptor
// (pidfd_getfd(2)) and asks the socket itself, so that it also sees what the namespaces' own lists do not show.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sockets PID")
		os.Exit(64)
	}
	pid, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = list(pid)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "list the sockets of process %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func list(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		link, err := os.Readlink(dir + "/" + e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return err
		}
		if !strings.HasPrefix(link, "socket:[") {
			continue
		}
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			return err
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if errors.Is(err, unix.EBADF) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take descriptor %d: %w", number, err)
		}
		line, err := describe(fd)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("descriptor %d: %w", number, err)
		}
		if line != "" {
			fmt.Println(line)
		}
	}
	return nil
}

// describe says what the duplicate is; nothing for a socket of another family.
func describe(fd int) (string, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 {
		return "", err
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return "", err
	}
	// The request takes no argument and answers a descriptor of the namespace.
	namespace, err := unix.IoctlRetInt(fd, unix.SIOCGSKNS)
	if err != nil {
		return "", fmt.Errorf("ask for its namespace: %w", err)
	}
	defer unix.Close(namespace)
	var where, socket unix.Stat_t
	if err := errors.Join(unix.Fstat(namespace, &where), unix.Fstat(fd, &socket)); err != nil {
		return "", err
	}
	local, peer := address(unix.Getsockname(fd)), address(unix.Getpeername(fd))
	protocol, state := "udp", "UNCONN"
	if kind == unix.SOCK_STREAM {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return "", err
		}
		protocol, state = "tcp", states[info.State]
	}
	if !peer.IsValid() && local.Port() == 0 && state != "LISTEN" {
		state = "NEW"
	}
	return fmt.Sprintf("%d %d %s %s %s %s", where.Ino, socket.Ino, protocol, state, written(local), written(peer)), nil
}

// The kernel's include/net/tcp_states.h, in ss' words.
var states = map[uint8]string{
	1: "ESTAB", 2: "SYN-SENT", 3: "SYN-RECV", 4: "FIN-WAIT-1", 5: "FIN-WAIT-2", 6: "TIME-WAIT", 7: "UNCONN", 8: "CLOSE-WAIT",
	9: "LAST-ACK", 10: "LISTEN", 11: "CLOSING", 12: "NEW-SYN-RECV",
}

func address(at unix.Sockaddr, err error) netip.AddrPort {
	if err != nil {
		return netip.AddrPort{} // it has none
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port))
	}
	return netip.AddrPort{}
}

func written(at netip.AddrPort) string {
	if !at.IsValid() {
		return "-"
	}
	return at.String()
}
