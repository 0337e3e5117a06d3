package cases

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"lateen.dev/lateen/internal/hostile/upstream"
)

// ClosingStream is the stream of the request behind each case of HTTP/2.
const ClosingStream = 1001

func itoa(n int) string { return strconv.Itoa(n) }

// frames is a client's side of a connection of HTTP/2, written without regard to rules.
type frames struct {
	out    bytes.Buffer
	framer *http2.Framer
	names  []string
}

func newFrames() *frames {
	f := &frames{}
	f.out.WriteString(http2.ClientPreface)
	f.framer = http2.NewFramer(&f.out, nil)
	f.framer.AllowIllegalWrites = true
	_ = f.framer.WriteSettings()
	return f
}

// block encodes fields, given as names and values in turn. No field enters the table of the peer.
func (f *frames) block(pairs ...string) []byte {
	var out bytes.Buffer
	encoder := hpack.NewEncoder(&out)
	for i := 0; i+1 < len(pairs); i += 2 {
		f.names = append(f.names, pairs[i])
		_ = encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	return out.Bytes()
}

func (f *frames) headers(stream uint32, end bool, pairs ...string) {
	_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.block(pairs...), EndStream: end, EndHeaders: true})
}

func (f *frames) data(stream uint32, end bool, data string) {
	_ = f.framer.WriteData(stream, end, []byte(data))
}

func (f *frames) raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) {
	_ = f.framer.WriteRawFrame(kind, flags, stream, []byte(payload))
}

// head are the fields of a valid request, which a rule changes.
type head struct {
	method, scheme, authority, path string
	more                            []string
}

func (h head) pairs() []string {
	var pairs []string
	for _, p := range [][2]string{{":method", h.method}, {":scheme", h.scheme}, {":authority", h.authority}, {":path", h.path}} {
		if p[1] != absent {
			pairs = append(pairs, p[0], p[1])
		}
	}
	return append(pairs, h.more...)
}

// absent leaves a pseudo-header field out.
const absent = "\x00absent"

func (g *generator) head() head {
	return head{g.one("GET", "DELETE", "POST"), "http", Host, g.path(), []string{upstream.CaseField, fmt.Sprint(g.number)}}
}

// rule2 is about HTTP/2. It writes the frames of a case.
type rule2 struct {
	name  string
	write func(g *generator, f *frames)
	// want are the statuses with which this mesh may answer. 0 is a reset of the stream, and -1 the end of the connection.
	want []int
	// timing says that the outcome depends on what a proxy does first.
	timing bool
}

func (g *generator) http2(r rule2) Case {
	f := newFrames()
	r.write(g, f)
	names := compared(f.names)
	f.headers(ClosingStream, true, ":method", "GET", ":scheme", "http", ":authority", Host, ":path", ClosingPath)
	return Case{Number: g.number, Rules: []string{r.name}, HTTP2: true, Bytes: f.out.Bytes(), Requests: 1, Names: names, Want: r.want, Timing: r.timing}
}

// alone is a rule about the head of a request without content.
func alone(name string, want []int, change func(g *generator, h *head)) rule2 {
	return rule2{name: "HTTP/2: " + name, want: want, write: func(g *generator, f *frames) {
		h := g.head()
		change(g, &h)
		f.headers(1, true, h.pairs()...)
	}}
}

// with is a rule about what follows a head.
func with(name string, want []int, write func(g *generator, f *frames, h head)) rule2 {
	return rule2{name: "HTTP/2: " + name, want: want, write: func(g *generator, f *frames) {
		h := g.head()
		h.method = "POST"
		write(g, f, h)
	}}
}

// timed is such a rule whose outcome depends on what a proxy does first.
func timed(name string, want []int, write func(g *generator, f *frames, h head)) rule2 {
	r := with(name, want, write)
	r.timing = true
	return r
}

func add(pairs ...string) func(*generator, *head) {
	return func(_ *generator, h *head) { h.more = append(h.more, pairs...) }
}

// invalid is what a malformed request may come to (RFC 9113 section 8.1.1).
var invalid = []int{400, 0, -1}

var rules2 = []rule2{
	alone("valid", ok, func(*generator, *head) {}),
	with("valid: content", ok, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.data(1, false, g.word())
		f.data(1, true, g.word())
	}),
	with("valid: content with a length", ok, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", "5")
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "abcde")
	}),
	with("valid: trailers", ok, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.data(1, false, "abc")
		f.headers(1, true, "x-trailer", g.word())
	}),
	with("content shorter than its length", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", "50")
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "abcde")
	}),
	with("content longer than its length", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", "2")
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "ab"+hidden)
	}),
	with("a length of no content", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", "5")
		f.headers(1, true, h.pairs()...)
	}),
	with("two lengths", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", "5", "content-length", g.one("5", "0"))
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "abcde")
	}),
	with("a length that is none", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "content-length", g.one("+5", "5 ", "0x5", "5,5", "", "-1"))
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "abcde")
	}),
	with("transfer-encoding", invalid, func(g *generator, f *frames, h head) {
		h.more = append(h.more, "transfer-encoding", g.one("chunked", "identity"))
		f.headers(1, false, h.pairs()...)
		f.data(1, true, "0\r\n\r\n"+hidden)
	}),
	alone("connection fields", invalid, func(g *generator, h *head) {
		h.more = append(h.more, g.one("connection", "keep-alive", "proxy-connection", "upgrade"), "close")
	}),
	alone("te: trailers", ok, add("te", "trailers")),
	alone("te: another value", invalid, add("te", "gzip")),
	alone("no :method", invalid, func(_ *generator, h *head) { h.method = absent }),
	alone("no :path", invalid, func(_ *generator, h *head) { h.path = absent }),
	alone("no :scheme", invalid, func(_ *generator, h *head) { h.scheme = absent }),
	alone("no :authority", nil, func(_ *generator, h *head) { h.authority = absent }),
	alone("host for :authority", ok, func(_ *generator, h *head) { h.authority = absent; h.more = append(h.more, "host", Host) }),
	alone("host equal to :authority", ok, add("host", Host)),
	alone("host other than :authority", invalid, add("host", "other.test")),
	alone("two host fields", invalid, add("host", Host, "host", Host)),
	alone("an empty :path", invalid, func(_ *generator, h *head) { h.path = "" }),
	alone("an empty :authority", invalid, func(_ *generator, h *head) { h.authority = "" }),
	alone("an empty :method", invalid, func(_ *generator, h *head) { h.method = "" }),
	alone("two :path fields", invalid, add(":path", DeniedPath)),
	{name: "HTTP/2: two :method fields", want: invalid, write: func(g *generator, f *frames) {
		f.headers(1, true, append([]string{":method", "GET"}, g.head().pairs()...)...)
	}},
	alone("a pseudo-header field behind others", invalid, func(_ *generator, h *head) { h.path = absent; h.more = append(h.more, ":path", "/a") }),
	alone("an unknown pseudo-header field", invalid, func(g *generator, h *head) {
		h.more = append([]string{":" + g.one("x", "status", "protocol"), "200"}, h.more...)
	}),
	alone("capitals in a name", invalid, func(g *generator, h *head) {
		h.more = append(h.more, g.one("X-Case-Of", "Content-Length", "hOst"), "1")
	}),
	alone("CR LF in a value", invalid, add("x-a", "b\r\nx-b: c")),
	alone("a request in a value", invalid, add("x-a", "b\r\n\r\n"+hidden)),
	alone("a NUL in a value", invalid, add("x-a", "b\x00c")),
	alone("a control character in a value", invalid, func(g *generator, h *head) { h.more = append(h.more, "x-a", g.one("\x01", "\x0b", "\x7f")) }),
	alone("CR LF in a name", invalid, add("x-a: b\r\nx-c", "d")),
	alone("a colon in a name", invalid, add("x-a:b", "c")),
	alone("a space in a name", invalid, add("x-a ", "c")),
	alone("an empty name", invalid, add("", "c")),
	alone("white space around a value", invalid, func(g *generator, h *head) { h.more = append(h.more, "x-a", g.one(" b", "b ", "\tb")) }),
	alone("bytes beyond ASCII in a value", ok, add("x-a", "\xc3\xa4")),
	alone("a name with an underscore", ok, add("x_a", "b")),
	alone("CR LF in :path", invalid, func(_ *generator, h *head) { h.path = "/a HTTP/1.1\r\nx-b: c\r\n\r\n" + hidden }),
	alone("a space in :path", invalid, func(_ *generator, h *head) { h.path = "/a b" }),
	alone("CR LF in :method", invalid, func(_ *generator, h *head) { h.method = "GET /a HTTP/1.1\r\nx-b: c\r\n\r\nGET" }),
	alone("a space in :method", invalid, func(_ *generator, h *head) { h.method = "GET " + HiddenPath }),
	alone("a :method in small letters", invalid, func(_ *generator, h *head) { h.method = "get" }),
	alone("a :method that nobody registered", ok, func(_ *generator, h *head) { h.method = "FOO" }),
	alone("CR LF in :authority", invalid, func(_ *generator, h *head) { h.authority = Host + "\r\nx-b: c" }),
	alone("a path in :authority", invalid, func(_ *generator, h *head) { h.authority = Host + "/a" }),
	alone("user information in :authority", invalid, func(_ *generator, h *head) { h.authority = "user@" + Host }),
	alone("a port in :authority", ok, func(_ *generator, h *head) { h.authority = Host + ":8080" }),
	alone("an asterisk for GET", invalid, func(_ *generator, h *head) { h.method, h.path = "GET", "*" }),
	alone("OPTIONS *", ok, func(_ *generator, h *head) { h.method, h.path = "OPTIONS", "*" }),
	alone("a whole URI as :path", invalid, func(_ *generator, h *head) { h.path = "http://" + Host + "/a" }),
	alone("a fragment in :path", invalid, func(_ *generator, h *head) { h.path = "/a#b" }),
	alone("two dots in :path", ok, func(g *generator, h *head) { h.path = "/a/../" + g.word() }),
	alone("denied path", denied, func(g *generator, h *head) { h.path = DeniedPath + g.one("", "/a", "?b") }),
	alone("denied path: two dots", denied, func(_ *generator, h *head) { h.path = "/a/.." + DeniedPath }),
	alone("denied path: encoded dots", denied, func(_ *generator, h *head) { h.path = "/a/%2e%2e" + DeniedPath }),
	alone("denied path: a fragment", invalid, func(_ *generator, h *head) { h.path = "/a#/.." + DeniedPath }),
	alone("another scheme", nil, func(g *generator, h *head) { h.scheme = g.one("ftp", "x", "") }),
	alone("the scheme https", nil, func(_ *generator, h *head) { h.scheme = "https" }),
	alone("a cookie in pieces", ok, add("cookie", "a=b", "cookie", "c=d")),
	alone("101 fields", tooLarge, func(_ *generator, h *head) {
		for len(h.more) < 2*101 {
			h.more = append(h.more, "x-fill", "1")
		}
	}),
	alone("connect", nil, func(_ *generator, h *head) { *h = head{"CONNECT", absent, Host + ":443", absent, h.more} }),
	alone("connect with a path", invalid, func(_ *generator, h *head) { h.method = "CONNECT" }),
	alone("connect without an authority", invalid, func(_ *generator, h *head) { *h = head{"CONNECT", absent, absent, absent, h.more} }),
	alone("extended connect of another protocol", nil, func(_ *generator, h *head) {
		h.method = "CONNECT"
		h.more = append([]string{":protocol", "connect-udp"}, h.more...)
	}),
	alone(":protocol of another method", invalid, func(_ *generator, h *head) {
		h.method = "GET"
		h.more = append([]string{":protocol", "websocket"}, h.more...)
	}),
	with("trailers with a pseudo-header field", invalid, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.data(1, false, "abc")
		f.headers(1, true, ":path", DeniedPath)
	}),
	with("trailers that do not end the stream", invalid, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.headers(1, false, "x-trailer", "a")
		f.data(1, true, "abc")
	}),
	with("trailers with transfer-encoding", invalid, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.data(1, false, "abc")
		f.headers(1, true, "transfer-encoding", "chunked")
	}),
	with("trailers with a length or host", ok, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.data(1, false, "abc")
		f.headers(1, true, g.one("content-length", "host"), "1")
	}),
	timed("a request that is reset", nil, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		_ = f.framer.WriteRSTStream(1, http2.ErrCodeCancel)
	}),
	timed("data behind the end", []int{200, 0, -1}, func(g *generator, f *frames, h head) {
		f.headers(1, true, h.pairs()...)
		f.data(1, true, hidden)
	}),
	with("data of the connection", []int{-1}, func(g *generator, f *frames, h head) {
		f.data(0, true, hidden)
	}),
	with("data of an idle stream", []int{-1}, func(g *generator, f *frames, h head) {
		f.data(5, true, hidden)
	}),
	with("a stream of even number", []int{-1}, func(g *generator, f *frames, h head) {
		f.headers(2, true, h.pairs()...)
	}),
	with("padding longer than the frame", []int{-1}, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.raw(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\xffabc")
	}),
	with("valid: padding", ok, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.raw(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x03abc\x00\x00\x00")
	}),
	with("a frame beyond the limit", []int{-1, 0}, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.raw(http2.FrameData, http2.FlagDataEndStream, 1, strings.Repeat("a", 1<<20))
	}),
	with("valid: a head in pieces", ok, func(g *generator, f *frames, h head) {
		block := f.block(h.pairs()...)
		half := len(block) / 2
		_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:half], EndStream: true})
		_ = f.framer.WriteContinuation(1, true, block[half:])
	}),
	with("a frame between the pieces of a head", []int{-1}, func(g *generator, f *frames, h head) {
		block := f.block(h.pairs()...)
		_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:4], EndStream: true})
		_ = f.framer.WritePing(false, [8]byte{})
		_ = f.framer.WriteContinuation(1, true, block[4:])
	}),
	with("a piece of a head without its start", []int{-1}, func(g *generator, f *frames, h head) {
		_ = f.framer.WriteContinuation(1, true, f.block(h.pairs()...))
	}),
	with("a head that is no HPACK", []int{-1}, func(g *generator, f *frames, h head) {
		f.raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, g.one("\xff\xff\xff\xff\xff\xff", "\x80", "\xfe", "\x40\x85\xff"))
	}),
	with("a stream that depends on itself", nil, func(g *generator, f *frames, h head) {
		_ = f.framer.WritePriority(1, http2.PriorityParam{StreamDep: 1})
		f.headers(1, true, h.pairs()...)
	}),
	with("a window beyond its limit", []int{-1, 0}, func(g *generator, f *frames, h head) {
		_ = f.framer.WriteWindowUpdate(0, 1<<31-1)
		f.headers(1, true, h.pairs()...)
	}),
	with("a window update of nothing", []int{-1, 0}, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		f.raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00")
		f.data(1, true, "abc")
	}),
	with("settings with a wrong length", []int{-1}, func(g *generator, f *frames, h head) {
		f.raw(http2.FrameSettings, 0, 0, "\x00\x01\x00")
		f.headers(1, true, h.pairs()...)
	}),
	with("settings out of range", []int{-1}, func(g *generator, f *frames, h head) {
		f.raw(http2.FrameSettings, 0, 0, g.one("\x00\x02\x00\x00\x00\x02", "\x00\x04\xff\xff\xff\xff", "\x00\x05\x00\x00\x00\x01"))
		f.headers(1, true, h.pairs()...)
	}),
	with("a push promise", []int{-1}, func(g *generator, f *frames, h head) {
		f.headers(1, false, h.pairs()...)
		_ = f.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: f.block(g.head().pairs()...), EndHeaders: true})
	}),
	with("an unknown frame", ok, func(g *generator, f *frames, h head) {
		f.raw(0xfa, 0xff, 0, "abc")
		f.headers(1, true, h.pairs()...)
	}),
}
