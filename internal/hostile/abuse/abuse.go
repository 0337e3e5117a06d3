// Package abuse plays clients and servers that mean harm by what they do, and polite clients beside them. It judges what a proxy says to
// the former, and counts what it gives to the latter.
package abuse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// Dial opens a connection to the proxy.
type Dial func() (net.Conn, error)

// Client is one that means harm.
type Client struct {
	Name string
	// Want is what the proxy says to it: a status, a code of GOAWAY, or the end of the connection.
	Want string
	// Slow says that it takes longer than a minute.
	Slow bool
	run  func(conn net.Conn) string
}

// Run plays the client. It returns what the proxy said.
func (c Client) Run(dial Dial) string {
	conn, err := dial()
	if err != nil {
		return "no connection: " + err.Error()
	}
	defer func() { _ = conn.Close() }()
	return c.run(conn)
}

// Words for what a proxy says without a status.
const (
	calm    = "GOAWAY ENHANCE_YOUR_CALM"
	closed  = "close"
	silence = "silence"
)

const start = "GET / HTTP/1.1\r\nHost: " + cases.Host + "\r\n"

// patience is for how long a proxy may say nothing to a client that goes on.
const patience = 30 * time.Second

// Clients are all of them.
var Clients = []Client{
	{Name: "ten thousand fields", Want: "431", run: func(conn net.Conn) string {
		return pour(conn, start+strings.Repeat("x-a: b\r\n", 10000)+"\r\n", nil)
	}},
	{Name: "a head that never ends", Want: "431", run: func(conn net.Conn) string {
		return pour(conn, start, func(n int) string { return fmt.Sprintf("x-%d: b\r\n", n) })
	}},
	{Name: "a value that never ends", Want: "431", run: func(conn net.Conn) string {
		return pour(conn, start+"x-a: ", func(int) string { return strings.Repeat("a", 1000) })
	}},
	{Name: "a target that never ends", Want: "414", run: func(conn net.Conn) string {
		return pour(conn, "GET /", func(int) string { return strings.Repeat("a", 1000) })
	}},
	{Name: "empty lines that never end", Want: "400", run: func(conn net.Conn) string {
		return pour(conn, "", func(int) string { return "\r\n" })
	}},
	{Name: "chunk extensions that never end", Want: "400", run: func(conn net.Conn) string {
		return pour(conn, "POST / HTTP/1.1\r\nHost: "+cases.Host+"\r\nTransfer-Encoding: chunked\r\n\r\n5", func(int) string { return ";" + strings.Repeat("a", 1000) })
	}},
	{Name: "trailers that never end", Want: "431", run: func(conn net.Conn) string {
		return pour(conn, "POST / HTTP/1.1\r\nHost: "+cases.Host+"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", func(n int) string { return fmt.Sprintf("x-%d: b\r\n", n) })
	}},
	{Name: "content that never ends, behind the answer", Want: "200", run: func(conn net.Conn) string {
		piece := "4000\r\n" + strings.Repeat("a", 0x4000) + "\r\n"
		return pour(conn, "POST "+upstream.EarlyPath+" HTTP/1.1\r\nHost: "+cases.Host+"\r\nTransfer-Encoding: chunked\r\n\r\n", func(int) string { return piece })
	}},
	{Name: "a head of one byte a second", Want: "408", Slow: true, run: func(conn net.Conn) string {
		return drip(conn, "x-a: "+strings.Repeat("a", 600))
	}},
	{Name: "ten thousand streams, opened and reset", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		request(f, uint32(2*n+1), true)
		_ = f.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
	})},
	{Name: "ten thousand streams that the proxy has to reset", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		request(f, uint32(2*n+1), false)
		_ = f.WriteRawFrame(http2.FrameWindowUpdate, 0, uint32(2*n+1), []byte{0, 0, 0, 0})
	})},
	{Name: "ten thousand requests beyond the limit on streams", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		request(f, uint32(2*n+1), false)
	})},
	{Name: "ten thousand heads that are malformed", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		malformed := append(block(), field("X-A", "b")...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: malformed, EndStream: true, EndHeaders: true})
	})},
	{Name: "ten thousand requests with less content than they say", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		announced := append(block(), field("content-length", "5")...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: announced, EndStream: true, EndHeaders: true})
	})},
	{Name: "ten thousand requests whose trailers do not end them", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		request(f, uint32(2*n+1), false)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: field("x-a", "b"), EndHeaders: true})
	})},
	{Name: "content behind the end of a request", Want: "GOAWAY STREAM_CLOSED", run: flood(10000, func(f *http2.Framer, n int) {
		request(f, uint32(2*n+1), true)
		_ = f.WriteData(uint32(2*n+1), false, []byte("a"))
	})},
	{Name: "references to a large field of the dynamic table", Want: calm, run: flood(10000, func(f *http2.Framer, n int) {
		fragment := block()
		if n == 0 {
			fragment = append(fragment, indexed("x-a", strings.Repeat("b", 3900))...)
		}
		// Index 62 is the newest entry.
		fragment = append(fragment, bytes.Repeat([]byte{0xbe}, 12000)...)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: fragment, EndStream: true, EndHeaders: true})
	})},
	{Name: "a head in pieces that never ends", Want: calm, run: flood(100000, func(f *http2.Framer, n int) {
		if n == 0 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block()})
			return
		}
		_ = f.WriteContinuation(1, false, field("x-a", "b"))
	})},
	{Name: "pings that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, _ int) { _ = f.WritePing(false, [8]byte{}) })},
	{Name: "settings that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, _ int) { _ = f.WriteSettings() })},
	{Name: "table sizes that never stay", Want: calm, run: flood(1000000, func(f *http2.Framer, n int) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(n%2) << 16})
	})},
	{Name: "settings of thousands of entries", Want: calm, run: flood(10000, func(f *http2.Framer, _ int) {
		_ = f.WriteSettings(slices.Repeat([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}, 2700)...)
	})},
	{Name: "an answer that is taken byte by byte", Want: calm, run: flood(1000000, func(f *http2.Framer, n int) {
		if n == 0 {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			large := bytes.Join([][]byte{field(":method", "GET"), field(":scheme", "http"), field(":authority", cases.Host), field(":path", upstream.LargePath)}, nil)
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: large, EndStream: true, EndHeaders: true})
			return
		}
		_ = f.WriteWindowUpdate(1, 1)
	})},
	{Name: "data of padding that never ends", Want: calm, run: flood(1000000, func(f *http2.Framer, n int) {
		if n == 0 {
			request(f, 1, false)
			return
		}
		_ = f.WriteDataPadded(1, false, nil, make([]byte, 255))
	})},
	{Name: "frames of an unknown type that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, _ int) {
		_ = f.WriteRawFrame(0xee, 0, 0, nil)
	})},
	{Name: "goodbyes that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, _ int) {
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	})},
	{Name: "data without content that never ends", Want: calm, run: flood(1000000, func(f *http2.Framer, n int) {
		if n == 0 {
			request(f, 1, false)
			return
		}
		_ = f.WriteData(1, false, nil)
	})},
	{Name: "priorities that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, n int) {
		_ = f.WritePriority(uint32(2*n+1)&0xffff|1, http2.PriorityParam{Weight: 1})
	})},
	{Name: "window updates that never end", Want: calm, run: flood(1000000, func(f *http2.Framer, _ int) { _ = f.WriteWindowUpdate(0, 1) })},
}

// pour writes a beginning and then more without end, until the proxy ends the connection or has said a status. Without more it
// writes the beginning alone.
func pour(conn net.Conn, beginning string, more func(n int) string) string {
	_ = conn.SetWriteDeadline(time.Now().Add(patience))
	go func() {
		if _, err := io.WriteString(conn, beginning); err != nil || more == nil {
			return
		}
		for n := 1; ; n++ {
			if _, err := io.WriteString(conn, more(n)); err != nil {
				return
			}
		}
	}()
	return heard(conn)
}

// heard is the first status, or the end of the connection.
func heard(conn net.Conn) string {
	answer := client.Read(conn, patience)
	switch {
	case len(answer.Statuses) > 0 && answer.Closed:
		return fmt.Sprint(answer.Statuses[0])
	case len(answer.Statuses) > 0:
		return fmt.Sprintf("%d, and the connection goes on", answer.Statuses[0])
	case answer.Closed:
		return closed
	}
	return silence
}

// drip writes the first lines of a head and then a byte a second until the proxy ends the connection.
func drip(conn net.Conn, text string) string {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		if _, err := io.WriteString(conn, start); err != nil {
			return
		}
		for i := range len(text) {
			if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
	said, err := io.ReadAll(conn)
	words := strings.SplitN(string(said), " ", 3)
	switch {
	case len(words) > 1:
		return words[1]
	case errors.Is(err, os.ErrDeadlineExceeded):
		return silence
	}
	return closed
}

func field(name, value string) []byte {
	var out bytes.Buffer
	_ = hpack.NewEncoder(&out).WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
	return out.Bytes()
}

// indexed is a field that enters the dynamic table (RFC 7541 §6.2.1).
func indexed(name, value string) []byte {
	var out bytes.Buffer
	_ = hpack.NewEncoder(&out).WriteField(hpack.HeaderField{Name: name, Value: value})
	return out.Bytes()
}

func block() []byte {
	return bytes.Join([][]byte{field(":method", "POST"), field(":scheme", "http"), field(":authority", cases.Host), field(":path", "/")}, nil)
}

func request(f *http2.Framer, stream uint32, ends bool) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block(), EndStream: ends, EndHeaders: true})
}

// flood writes frames until the proxy ends the connection, at most so many times.
func flood(times int, write func(f *http2.Framer, n int)) func(net.Conn) string {
	return func(conn net.Conn) string {
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		go func() {
			var out bytes.Buffer
			out.WriteString(http2.ClientPreface)
			framer := http2.NewFramer(&out, nil)
			framer.AllowIllegalWrites = true
			_ = framer.WriteSettings()
			for n := range times {
				write(framer, n)
				if out.Len() > 16<<10 {
					if _, err := conn.Write(out.Bytes()); err != nil {
						return
					}
					out.Reset()
				}
			}
			_, _ = conn.Write(out.Bytes())
		}()
		framer := http2.NewFramer(io.Discard, conn)
		for {
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			frame, err := framer.ReadFrame()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return silence
			}
			if err != nil {
				return closed
			}
			if goaway, is := frame.(*http2.GoAwayFrame); is && goaway.ErrCode != http2.ErrCodeNo {
				return "GOAWAY " + goaway.ErrCode.String()
			}
		}
	}
}

// Unread asks for content without end and reads none of it, until the upstream has written nothing for a while. It returns how many
// bytes the upstream could write.
func Unread(dial Dial, lane *upstream.Lane) (int64, error) {
	conn, err := dial()
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	before := lane.LargeBytes()
	if _, err := io.WriteString(conn, "GET "+upstream.LargePath+" HTTP/1.1\r\nHost: "+cases.Host+"\r\n\r\n"); err != nil {
		return 0, err
	}
	last, since := before, time.Now()
	for {
		time.Sleep(100 * time.Millisecond)
		now := lane.LargeBytes()
		written := now - before
		switch {
		case written > 1<<30:
			return written, errors.New("the upstream goes on writing")
		case now != last:
			last, since = now, time.Now()
		case written > 0 && time.Since(since) > 2*time.Second:
			return written, nil
		case time.Since(since) > patience:
			return written, errors.New("the upstream was not asked")
		}
	}
}
