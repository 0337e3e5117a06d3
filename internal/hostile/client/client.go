// Package client sends the bytes of a case over one connection and tells what came back. It follows no rule of HTTP by itself.
package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Answer is what a proxy said to a case.
type Answer struct {
	// Statuses are those of the answers in order, without informational ones but 101. Of HTTP/2 they are those of the case's streams.
	Statuses []int
	// Reset says that the proxy reset a stream of the case.
	Reset bool
	// Closed says that the proxy ended the connection. Otherwise it was silent for too long.
	Closed bool
	// Text is what came, as far as it is of use to a reader.
	Text string
}

// Send writes a case and reads until the connection ends, or until nothing has come for so long.
func Send(conn net.Conn, c cases.Case, quiet time.Duration) Answer {
	defer func() { _ = conn.Close() }()
	_ = conn.SetWriteDeadline(time.Now().Add(10 * quiet))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = conn.Write(c.Bytes) // a proxy that has heard enough ends the connection
	}()
	defer func() {
		_ = conn.Close()
		<-written
	}()
	in := &reader{conn: conn, quiet: quiet}
	if c.HTTP2 {
		return in.http2()
	}
	return in.http1()
}

// Read reads answers of HTTP/1 until the connection ends, or until nothing has come for so long. It leaves the connection open.
func Read(conn net.Conn, quiet time.Duration) Answer {
	return (&reader{conn: conn, quiet: quiet}).http1()
}

// reader reads with a limit on silence, and keeps the first bytes.
type reader struct {
	conn  net.Conn
	quiet time.Duration
	kept  bytes.Buffer
	// closed says that the peer ended the connection, by a reset or not.
	closed bool
}

const mostKept = 2000

func (r *reader) Read(to []byte) (int, error) {
	_ = r.conn.SetReadDeadline(time.Now().Add(r.quiet))
	n, err := r.conn.Read(to)
	r.kept.Write(to[:min(n, max(0, mostKept-r.kept.Len()))])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.closed = true
	}
	return n, err
}

func (r *reader) http1() Answer {
	var answer Answer
	in := bufio.NewReader(r)
	for {
		status, err := readResponse(in)
		if status != 0 {
			answer.Statuses = append(answer.Statuses, status)
		}
		if errors.Is(err, errLast) {
			// Some proxies end the connection a second later, or wait for the client to do so.
			answer.Closed = true
			answer.Text = r.kept.String()
			return answer
		}
		if err != nil || status == http.StatusSwitchingProtocols {
			break
		}
	}
	if len(answer.Statuses) == 0 || answer.Statuses[len(answer.Statuses)-1] != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, in)
	}
	answer.Closed = r.closed
	answer.Text = r.kept.String()
	return answer
}

// readResponse reads one answer. Upstreams answer without content, so an answer to HEAD needs no care.
func readResponse(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	words := strings.SplitN(strings.TrimSpace(line), " ", 3)
	if len(words) < 2 || !strings.HasPrefix(words[0], "HTTP/1.") {
		return 0, errors.New("no status line")
	}
	status, err := strconv.Atoi(words[1])
	if err != nil {
		return 0, err
	}
	length, chunked, last := int64(0), false, false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return status, err
		}
		line = strings.TrimSpace(line)
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.ParseInt(value, 10, 64); err != nil {
				return status, err
			}
		case "transfer-encoding":
			chunked = true
		case "connection":
			last = strings.EqualFold(value, "close")
		}
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		return 0, nil
	}
	if chunked {
		return status, errors.New("the content of an answer is in chunks")
	}
	if _, err = io.CopyN(io.Discard, in, length); err == nil && last {
		err = errLast
	}
	return status, err
}

// errLast says that the proxy answers nothing more.
var errLast = errors.New("the answer ends the connection")

func (r *reader) http2() Answer {
	var answer Answer
	framer := http2.NewFramer(io.Discard, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.SetMaxReadFrameSize(1 << 20)
	ended := map[bool]bool{} // by whether the stream is the closing one
	for !ended[true] || !ended[false] {
		frame, err := framer.ReadFrame()
		if err != nil {
			break
		}
		stream := frame.Header().StreamID
		isClosing := stream == cases.ClosingStream
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, _ := strconv.Atoi(f.PseudoValue("status"))
			if !isClosing && status >= 200 {
				answer.Statuses = append(answer.Statuses, status)
			}
			if f.StreamEnded() {
				ended[isClosing] = true
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				ended[isClosing] = true
			}
		case *http2.RSTStreamFrame:
			ended[isClosing] = true
			answer.Reset = answer.Reset || !isClosing && len(answer.Statuses) == 0
			answer.Text += "reset: " + f.ErrCode.String() + "\n"
		case *http2.GoAwayFrame:
			answer.Text += "goaway: " + f.ErrCode.String() + "\n"
			if f.ErrCode != http2.ErrCodeNo {
				answer.Closed = true
				return answer
			}
		}
	}
	answer.Closed = r.closed
	return answer
}
