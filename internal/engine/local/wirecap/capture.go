package wirecap

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// maxFrame is the largest frame: a segment that a network card would cut up, with headers.
const maxFrame = 128 << 10

// ring is the socket's buffer in bytes: some tenths of a second at what two cores can send.
const ring = 64 << 20

// Capture hands every frame that enters through one of the named links of the calling process's namespace to frame, until
// ctx ends. Between nodes each frame enters through exactly one. It returns how many the kernel had to drop.
func Capture(ctx context.Context, links []string, frame func(at time.Time, b []byte)) (dropped int, err error) {
	indexes := map[int]bool{}
	for _, name := range links {
		l, err := net.InterfaceByName(name)
		if err != nil {
			return 0, fmt.Errorf("capture on %s: %w", name, err)
		}
		indexes[l.Index] = true
	}
	// All protocols: a bridge takes frames away before those who ask for one protocol are served.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return 0, fmt.Errorf("open a packet socket: %w; the kernel needs CONFIG_PACKET", err)
	}
	f := os.NewFile(uintptr(fd), "packets")
	defer f.Close()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, ring); err != nil {
		return 0, fmt.Errorf("size the packet socket's buffer: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, maxFrame)
	for ctx.Err() == nil {
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			for {
				n, from, err := unix.Recvfrom(int(fd), buf, 0)
				switch {
				case err == unix.EAGAIN:
					return ctx.Err() != nil
				case err == unix.EINTR:
					continue
				case err != nil:
					rerr = err
					return true
				}
				if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING && indexes[ll.Ifindex] {
					frame(time.Now(), buf[:n])
				}
			}
		})
		if ctx.Err() != nil {
			break
		}
		if err != nil || rerr != nil {
			return 0, fmt.Errorf("read packets: %w", firstError(rerr, err))
		}
	}
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	runtime.KeepAlive(f)
	if err != nil {
		return 0, fmt.Errorf("read packet statistics: %w", err)
	}
	return int(stats.Drops), nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// PcapWriter writes frames as a pcap file, which tcpdump and Wireshark read.
type PcapWriter struct{ w io.Writer }

// NewPcapWriter writes the file's header.
func NewPcapWriter(w io.Writer) (*PcapWriter, error) {
	var h [24]byte
	le := binary.LittleEndian
	le.PutUint32(h[0:], 0xa1b23c4d) // times in nanoseconds
	le.PutUint16(h[4:], 2)
	le.PutUint16(h[6:], 4)
	le.PutUint32(h[16:], maxFrame)
	le.PutUint32(h[20:], 1) // Ethernet
	_, err := w.Write(h[:])
	return &PcapWriter{w}, err
}

// Write writes one frame.
func (p *PcapWriter) Write(at time.Time, frame []byte) error {
	b := make([]byte, 16, 16+len(frame))
	le := binary.LittleEndian
	le.PutUint32(b[0:], uint32(at.Unix()))
	le.PutUint32(b[4:], uint32(at.Nanosecond()))
	le.PutUint32(b[8:], uint32(len(frame)))
	le.PutUint32(b[12:], uint32(len(frame)))
	_, err := p.w.Write(append(b, frame...))
	return err
}
