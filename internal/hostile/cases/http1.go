package cases

import (
	"fmt"
	"strings"

	"lateen.dev/lateen/internal/hostile/upstream"
)

// rule1 spoils one thing of a valid request.
type rule1 struct {
	name  string
	spoil func(*generator, *request)
	// want are the statuses with which this mesh may answer first; none allows every status.
	want []int
	// single says that the rule makes no sense beside another one.
	single bool
	// timing says that the outcome depends on what a proxy does first.
	timing bool
}

// timed makes a rule such a one.
func (r rule1) timed() rule1 {
	r.timing = true
	return r
}

var (
	ok         = []int{200}
	bad        = []int{400}
	notServed  = []int{501}
	tooLarge   = []int{431}
	noVersion  = []int{505}
	denied     = []int{403}
	deniedElse = []int{400, 403}
)

// hidden is a request that stands where content is.
const hidden = "GET " + HiddenPath + " HTTP/1.1\r\nHost: " + Host + "\r\n\r\n"

var rules1 = join(plainRules, lengthRules, codingRules, chunkRules, lineRules, startRules, pathRules(), hostRules, fieldRules, upgradeRules)

func join(groups ...[]rule1) []rule1 {
	var all []rule1
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

var plainRules = []rule1{
	{name: "valid", want: ok, spoil: func(*generator, *request) {}},
	{name: "valid: content with a length", want: ok, spoil: func(g *generator, q *request) { g.sized(q) }},
	{name: "valid: content in chunks", want: ok, spoil: func(g *generator, q *request) { g.chunked(q) }},
	{name: "valid: two requests at once", want: ok, spoil: func(g *generator, q *request) {
		q.behind = fmt.Sprintf("GET /second HTTP/1.1\r\nHost: %s\r\n%s: %d\r\n\r\n", Host, upstream.CaseField, g.number)
		q.requests = 2
	}},
	{name: "valid: content of GET", want: ok, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.method = "GET"
	}},
	{name: "valid: chunks of DELETE", want: ok, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.method = "DELETE"
	}},
	{name: "valid: a request as content", want: ok, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.content = hidden
		q.set("Content-Length", fmt.Sprint(len(hidden)))
	}},
	{name: "expect: 100-continue", want: ok, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.add("Expect", "100-continue")
	}},
	{name: "expect: something else", spoil: func(g *generator, q *request) {
		g.sized(q)
		q.add("Expect", g.one("200-ok", "100-continue-now", "1"))
	}},
}

// lengths is a rule about the value of content-length, with a hidden request as content.
func lengths(name string, want []int, value func(g *generator, length int) string) rule1 {
	return rule1{name: name, want: want, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.content = hidden
		q.set("Content-Length", value(g, len(hidden)))
	}}
}

var lengthRules = []rule1{
	lengths("content-length: a list of equal numbers", bad, func(_ *generator, n int) string { return fmt.Sprintf("%d, %d", n, n) }),
	lengths("content-length: a list of different numbers", bad, func(_ *generator, n int) string { return fmt.Sprintf("0, %d", n) }),
	lengths("content-length: a sign", bad, func(g *generator, n int) string { return g.one("+", "-") + fmt.Sprint(n) }),
	lengths("content-length: hexadecimal", bad, func(_ *generator, n int) string { return fmt.Sprintf("0x%x", n) }),
	lengths("content-length: a space within", bad, func(_ *generator, n int) string { return fmt.Sprintf("%d 0", n) }),
	lengths("content-length: a fraction", bad, func(_ *generator, n int) string { return fmt.Sprintf("%d.0", n) }),
	lengths("content-length: an underscore or letter", bad, func(g *generator, n int) string { return fmt.Sprintf("%d%s", n, g.one("_0", "e1", "a", "\u0660")) }),
	lengths("content-length: empty", bad, func(*generator, int) string { return "" }),
	lengths("content-length: beyond 64 bits", bad, func(g *generator, n int) string {
		return g.one("18446744073709551616", "18446744073709551695", "99999999999999999999999999")
	}),
	lengths("content-length: leading zeros", nil, func(_ *generator, n int) string { return fmt.Sprintf("000%d", n) }),
	{name: "content-length: two equal fields", want: bad, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.add("content-length", fmt.Sprint(len(q.content)))
	}},
	{name: "content-length: two different fields", want: bad, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.set("Content-Length", "0")
		q.add("content-length", fmt.Sprint(len(hidden)))
		q.content = hidden
	}},
	{name: "content-length: longer than the content", spoil: func(g *generator, q *request) {
		g.sized(q)
		q.set("Content-Length", fmt.Sprint(len(q.content)+1000))
	}, single: true},
	{name: "content-length: shorter than the content", want: ok, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.content += "x y z\r\n\r\n"
	}, single: true},
	{name: "content-length and transfer-encoding", want: bad, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.content = "0\r\n\r\n" + hidden
		q.add("Content-Length", fmt.Sprint(len(q.content)))
	}},
	{name: "transfer-encoding and content-length", want: bad, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.content = "0\r\n\r\n" + hidden
		q.set("Content-Length", fmt.Sprint(len(q.content)))
		q.add("Transfer-Encoding", "chunked")
	}},
	{name: "a length under a name with an underscore", want: ok, spoil: func(g *generator, q *request) { q.add("content_length", "5") }},
}

// codings is a rule about the value of transfer-encoding, with a hidden request behind the last chunk.
func codings(name string, want []int, values ...string) rule1 {
	return rule1{name: name, want: want, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.set("Transfer-Encoding", g.one(values...))
	}}
}

var codingRules = []rule1{
	codings("transfer-encoding: chunked twice", bad, "chunked, chunked", "chunked,chunked"),
	codings("transfer-encoding: another coding before chunked", notServed, "gzip, chunked", "identity, chunked", "x, chunked"),
	codings("transfer-encoding: another coding behind chunked", []int{400, 501}, "chunked, identity", "chunked, gzip"),
	codings("transfer-encoding: another coding alone", notServed, "gzip", "identity", "xchunked", "chunked1", "deflate"),
	codings("transfer-encoding: empty elements", nil, "chunked,", ",chunked", " , chunked"),
	codings("transfer-encoding: a parameter", nil, "chunked;q=1", "chunked; a=b"),
	codings("transfer-encoding: quotation marks", nil, `"chunked"`, "'chunked'"),
	codings("transfer-encoding: capitals", ok, "Chunked", "CHUNKED", "cHuNkEd"),
	codings("transfer-encoding: a vertical tab", bad, "\x0bchunked", "chunked\x0b", "\x0cchunked"),
	codings("transfer-encoding: white space", ok, "\tchunked", "  chunked \t", "chunked "),
	codings("transfer-encoding: empty", nil, ""),
	{name: "transfer-encoding: two fields", want: nil, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.add("transfer-encoding", g.one("identity", "chunked", "gzip"))
	}},
	{name: "transfer-encoding: a space before the colon", want: bad, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.line("Transfer-Encoding").colon = g.one(" : ", "\t: ", " :")
	}},
	{name: "transfer-encoding: folded", want: bad, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.line("Transfer-Encoding").value = g.one("\r\n chunked", "identity\r\n\tchunked")
	}},
	{name: "transfer-encoding of HTTP/1.0", want: bad, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.version = "HTTP/1.0"
	}},
	{name: "transfer-encoding under a name with an underscore", want: ok, spoil: func(g *generator, q *request) { q.add("transfer_encoding", "chunked") }},
}

// chunks is a rule about content in chunks: it makes the content from valid data.
func chunks(name string, want []int, single bool, content func(g *generator, data string) string) rule1 {
	return rule1{name: name, want: want, single: single, spoil: func(g *generator, q *request) {
		g.chunked(q)
		q.content = content(g, strings.Repeat(g.word(), 2))
	}}
}

// steady is data for rules whose outcome depends on where a lenient reader finds the next chunk.
const steady = "abcdefgh"

var chunkRules = []rule1{
	chunks("chunk size: LF alone", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("%x\n%s\r\n0\r\n\r\n", len(d), d) }),
	chunks("chunk data: LF alone behind it", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("%x\r\n%s\n0\r\n\r\n", len(d), d) }),
	chunks("chunk data: nothing behind it", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("%x\r\n%s0\r\n\r\n", len(d), d) }),
	chunks("chunk data: longer than its size", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("1\r\n%s\r\n0\r\n\r\n", d+"xx") }),
	chunks("chunk size: 0x", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%s%x\r\n%s\r\n0\r\n\r\n", g.one("0x", "0X"), len(d), d)
	}),
	chunks("chunk size: a sign", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%s%x\r\n%s\r\n0\r\n\r\n", g.one("+", "-"), len(d), d)
	}),
	chunks("chunk size: an underscore", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("0_%x\r\n%s\r\n0\r\n\r\n", len(d), d) }),
	chunks("chunk size: a space before it", bad, false, func(_ *generator, d string) string { return fmt.Sprintf(" %x\r\n%s\r\n0\r\n\r\n", len(d), d) }),
	chunks("chunk size: a space behind it", nil, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(d), g.one(" ", "\t", "  "), d)
	}),
	chunks("chunk size: empty", bad, false, func(_ *generator, d string) string { return "\r\n" + d + "\r\n0\r\n\r\n" }),
	chunks("chunk size: beyond 64 bits", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%s%x\r\n%s\r\n0\r\n\r\n", g.one("10000000000000000", "fffffffffffffffff", "100000000"+"00000000"), len(d), d)
	}),
	chunks("chunk size: close to 64 bits", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("ffffffffffffff%x%x\r\n%s\r\n0\r\n\r\n", 8+g.IntN(8), len(d)%16, d)
	}),
	chunks("chunk size: leading zeros", ok, false, func(_ *generator, d string) string { return fmt.Sprintf("00000%x\r\n%s\r\n000\r\n\r\n", len(d), d) }),
	chunks("chunk size: capitals", ok, false, func(g *generator, d string) string { return fmt.Sprintf("A\r\n%s\r\n0\r\n\r\n", "0123456789") }),
	chunks("chunk extension", ok, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x%s\r\n%s\r\n0\r\n\r\n", len(d), g.one(";a", ";a=b", `;a="b c"`, ";a=b;c"), d)
	}),
	chunks("chunk extension: LF within it", bad, false, func(_ *generator, _ string) string {
		d := steady
		return fmt.Sprintf("%x;a\nb\r\n%s\r\n0\r\n\r\n", len(d), d)
	}),
	chunks("chunk extension: LF in quotation marks", bad, false, func(_ *generator, _ string) string {
		d := steady
		return fmt.Sprintf("%x;a=\"\n\"\r\n%s\r\n0\r\n\r\n", len(d), d)
	}),
	chunks("chunk extension: CR within it", bad, false, func(g *generator, d string) string { return fmt.Sprintf("%x;a\rb\r\n%s\r\n0\r\n\r\n", len(d), d) }),
	chunks("chunk extension: a NUL", nil, false, func(g *generator, d string) string { return fmt.Sprintf("%x;a\x00\r\n%s\r\n0\r\n\r\n", len(d), d) }),
	chunks("chunk extension: 20,000 bytes", nil, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x;%s\r\n%s\r\n0\r\n\r\n", len(d), strings.Repeat("a", 20000), d)
	}),
	chunks("chunks: the last one is missing", nil, true, func(_ *generator, d string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(d), d) }),
	chunks("chunks: a CR before CRLF of the last one", bad, false, func(_ *generator, d string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\r\n\r\n", len(d), d) }),
	chunks("chunks: an empty line behind the last one", ok, true, func(g *generator, d string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n\r\n", len(d), d) }),
	chunks("trailers", ok, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nx-trailer: %s\r\n\r\n", len(d), d, g.word())
	}),
	chunks("trailers: a field of framing or routing", nil, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n\r\n", len(d), d, g.one("Content-Length: 5", "Transfer-Encoding: chunked", "Host: other.test", "Authorization: x", "Connection: close"))
	}),
	chunks("trailers: LF alone", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nx-trailer: a\n\r\n", len(d), d)
	}),
	chunks("trailers: LF alone at the end", bad, false, func(g *generator, d string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\n", len(d), d) }),
	chunks("trailers: folded", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nx-trailer: a\r\n b\r\n\r\n", len(d), d)
	}),
	chunks("trailers: no colon", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nx-trailer\r\n\r\n", len(d), d)
	}),
	chunks("trailers: a space before the colon", bad, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nx-trailer : a\r\n\r\n", len(d), d)
	}).timed(), // by HAProxy
	chunks("trailers: 101 fields", tooLarge, false, func(g *generator, d string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", len(d), d, strings.Repeat("x-trailer: a\r\n", 101))
	}),
}

var lineRules = []rule1{
	{name: "LF alone behind the request line", want: bad, spoil: func(_ *generator, q *request) { q.end = "\n" }},
	{name: "LF alone behind a field", want: bad, spoil: func(g *generator, q *request) { g.any(q).end = "\n" }},
	{name: "LF alone behind the head", want: bad, spoil: func(_ *generator, q *request) { q.headEnd = "\n" }},
	{name: "LF alone everywhere", want: bad, spoil: func(_ *generator, q *request) {
		q.end, q.headEnd = "\n", "\n"
		for i := range q.fields {
			q.fields[i].end = "\n"
		}
	}},
	{name: "CR alone behind a field", want: bad, spoil: func(g *generator, q *request) { g.any(q).end = "\r" }},
	{name: "CR alone within a value", want: bad, spoil: func(g *generator, q *request) { g.any(q).value = "a\rb: c" }},
	{name: "CR CR LF behind a field", want: bad, spoil: func(g *generator, q *request) { g.any(q).end = "\r\r\n" }},
	{name: "CR CR LF behind the request line", want: bad, spoil: func(_ *generator, q *request) { q.end = "\r\r\n" }},
	{name: "a folded field", want: bad, spoil: func(g *generator, q *request) { g.any(q).value = g.one("a\r\n b", "a\r\n\tb", "a\r\n  b: c") }},
	{name: "white space before the first field", want: bad, spoil: func(g *generator, q *request) { q.end = "\r\n" + g.one(" ", "\t") }},
	{name: "a line of white space", want: bad, spoil: func(g *generator, q *request) { g.any(q).end = g.one("\r\n \r\n", "\r\n\t\r\n") }},
	{name: "an empty line before the request", want: ok, spoil: func(_ *generator, q *request) { q.before = "\r\n" }},
	{name: "ten empty lines before the request", want: bad, spoil: func(_ *generator, q *request) { q.before = strings.Repeat("\r\n", 10) }},
	{name: "LF alone before the request", want: bad, spoil: func(_ *generator, q *request) { q.before = "\n" }},
	{name: "white space before the request", want: bad, spoil: func(g *generator, q *request) { q.before = g.one(" ", "\t", "\r\n ", "\x0b") }},
	{name: "a NUL in a value", want: bad, spoil: func(g *generator, q *request) { g.any(q).value = "a\x00b" }},
	{name: "a NUL in a name", want: bad, spoil: func(g *generator, q *request) { g.any(q).name = "x-a\x00" }},
	{name: "a control character in a value", want: bad, spoil: func(g *generator, q *request) {
		g.any(q).value = "a" + g.one("\x01", "\x08", "\x0b", "\x0c", "\x1b", "\x7f") + "b"
	}},
	{name: "bytes beyond ASCII in a value", want: ok, spoil: func(g *generator, q *request) { g.any(q).value = g.one("\xc3\xa4", "\xff", "a\x80b") }},
	{name: "bytes beyond ASCII in a name", want: bad, spoil: func(g *generator, q *request) { g.any(q).name = g.one("x-\xc3\xa4", "x-\xff") }},
	{name: "a space before the colon", want: bad, spoil: func(g *generator, q *request) { g.any(q).colon = g.one(" :", " : ", "\t:") }},
	{name: "no space behind the colon", want: ok, spoil: func(g *generator, q *request) { g.any(q).colon = ":" }},
	{name: "white space around a value", want: ok, spoil: func(g *generator, q *request) {
		f := g.any(q)
		f.colon, f.value = g.one(":  ", ":\t", ": \t "), f.value+g.one(" ", "\t", " \t ")
	}},
	{name: "a field without a name", want: bad, spoil: func(g *generator, q *request) { g.any(q).name = "" }},
	{name: "a field without a colon", want: bad, spoil: func(g *generator, q *request) { g.any(q).colon = "" }},
	{name: "a name that is no token", want: bad, spoil: func(g *generator, q *request) {
		g.any(q).name = "x" + g.one(" ", "(", "/", "@", "[", "{", "\"", ",", ";", "=", "?", "\\") + "a"
	}},
	{name: "a name with rare characters of a token", want: ok, spoil: func(g *generator, q *request) {
		g.any(q).name = "x" + g.one("!", "#", "$", "%", "&", "'", "*", "+", ".", "^", "`", "|", "~") + "a"
	}},
	{name: "a name with an underscore", want: ok, spoil: func(g *generator, q *request) { g.any(q).name = "x_a" }},
	{name: "an empty value", want: ok, spoil: func(g *generator, q *request) { g.any(q).value = "" }},
}

var startRules = []rule1{
	{name: "two spaces in the request line", want: bad, spoil: func(g *generator, q *request) {
		if g.IntN(2) == 0 {
			q.gap1 = "  "
		} else {
			q.gap2 = "  "
		}
	}},
	{name: "a tab in the request line", want: bad, spoil: func(g *generator, q *request) {
		if g.IntN(2) == 0 {
			q.gap1 = "\t"
		} else {
			q.gap2 = "\t"
		}
	}},
	{name: "white space behind the version", want: bad, spoil: func(g *generator, q *request) { q.version += g.one(" ", "\t") }},
	{name: "a request line of two words", want: bad, spoil: func(_ *generator, q *request) { q.gap2, q.version = "", "" }, single: true},
	{name: "a request line of four words", want: bad, spoil: func(g *generator, q *request) { q.version = "x HTTP/1.1" }},
	{name: "HTTP/1.0", want: ok, spoil: func(g *generator, q *request) {
		if q.content == "" || len(q.fields) == 0 {
			q.version = "HTTP/1.0"
			return
		}
		g.sized(q)
		q.version = "HTTP/1.0"
	}},
	{name: "HTTP/1.0 without a host", want: nil, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.version = "HTTP/1.0"
		q.drop("Host")
	}, single: true},
	{name: "HTTP/1.0 that keeps the connection", want: ok, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.version = "HTTP/1.0"
		q.add("Connection", "keep-alive")
	}},
	{name: "another minor version", want: noVersion, spoil: func(g *generator, q *request) { q.version = g.one("HTTP/1.2", "HTTP/1.9") }},
	{name: "another major version", want: noVersion, spoil: func(g *generator, q *request) { q.version = g.one("HTTP/2.0", "HTTP/3.0", "HTTP/0.9") }},
	{name: "a version that is none", want: bad, spoil: func(g *generator, q *request) {
		q.version = g.one("http/1.1", "HTTP/1", "HTTP/01.1", "HTTP/1,1", "HTTP 1.1", "HTTPS/1.1", "HTTP/", "1.1", "ICE/1.1")
	}},
	{name: "a version of more digits", want: bad, spoil: func(g *generator, q *request) { q.version = g.one("HTTP/1.10", "HTTP/1.11", "HTTP/1.100") }},
	{name: "a method in small letters", want: bad, spoil: func(g *generator, q *request) { q.method = strings.ToLower(g.one(q.method, "get", "post")) }},
	{name: "a method that nobody registered", want: ok, spoil: func(g *generator, q *request) { q.method = g.one("FOO", "X-GET", "BREW", "a") }},
	{name: "a registered method of WebDAV", want: ok, spoil: func(g *generator, q *request) { q.method = g.one("PROPFIND", "REPORT", "LOCK", "QUERY") }},
	{name: "a method that is no token", want: bad, spoil: func(g *generator, q *request) { q.method = g.one("GE(T", "GET/", "G@T", "\"GET\"", "GET,", "{}") }},
	{name: "a method of 100 letters", want: notServed, spoil: func(_ *generator, q *request) { q.method = strings.Repeat("A", 100) }},
	{name: "TRACE", spoil: func(g *generator, q *request) {
		g.sized(q)
		q.content = ""
		q.drop("Content-Length")
		q.method = "TRACE"
	}},
	{name: "PRI", want: bad, spoil: func(_ *generator, q *request) { q.method, q.target = "PRI", "*" }},
	{name: "OPTIONS *", want: ok, spoil: func(g *generator, q *request) { g.bare(q); q.method, q.target = "OPTIONS", "*" }},
	{name: "an asterisk for another method", want: bad, spoil: func(g *generator, q *request) { g.bare(q); q.method, q.target = g.one("GET", "DELETE"), "*" }},
}

// bare takes the content from a request.
func (g *generator) bare(q *request) {
	q.drop("Content-Length")
	q.drop("Transfer-Encoding")
	q.content, q.method = "", "GET"
}
