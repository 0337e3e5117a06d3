package diag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets asks the kernel for all TCP sockets in the calling thread's network namespace, and hands on each as it comes:
// nobody but the pod decides how many there are.
func sockets(each func(Socket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dump(unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY, request(family), func(m syscall.NetlinkMessage) (bool, error) {
			s, err := parse(m.Data)
			if err == nil {
				each(s)
			}
			return true, err
		})
		if err != nil {
			return fmt.Errorf("list TCP sockets: %w; the kernel needs INET_DIAG and INET_TCP_DIAG", err)
		}
	}
	return nil
}

// addresses are those of the calling thread's network namespace, or the first of them.
func addresses() ([]netip.Addr, error) {
	var own []netip.Addr
	// No family: both.
	err := dump(unix.NETLINK_ROUTE, unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), func(m syscall.NetlinkMessage) (bool, error) {
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return false, err
		}
		at := map[uint16][]byte{}
		for _, a := range attributes {
			at[a.Attr.Type] = a.Value
		}
		// A link between two has the other's address in the second.
		for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
			if a, ok := netip.AddrFromSlice(at[kind]); ok {
				own = append(own, a.Unmap())
				break
			}
		}
		return len(own) < maxAddresses, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return own, nil
}

// dump asks the kernel for a list and hands on each answer, until it is not wanted any more.
func dump(protocol int, kind uint16, request []byte, each func(syscall.NetlinkMessage) (more bool, err error)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	question := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(request))
	binary.NativeEndian.PutUint32(question, uint32(cap(question)))
	binary.NativeEndian.PutUint16(question[4:], kind)
	binary.NativeEndian.PutUint16(question[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, append(question, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// The kernel writes as much at once as there is room for.
	buffer := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if more, err := answers(buffer[:n], each); err != nil || !more {
			return err
		}
	}
}

// answers reads one datagram of the kernel's, and says whether there may be more.
func answers(datagram []byte, each func(syscall.NetlinkMessage) (bool, error)) (more bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return false, err
	}
	for _, m := range messages {
		switch m.Header.Type {
		case unix.NLMSG_DONE:
			return false, refusal(m.Data)
		case unix.NLMSG_ERROR:
			return false, refusal(m.Data)
		}
		if more, err := each(m); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// refusal is the error number that a list ends with, if it is one.
func refusal(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	if number := int32(binary.NativeEndian.Uint32(b)); number < 0 {
		return unix.Errno(-number)
	}
	return nil
}
