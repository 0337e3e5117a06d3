package cases

import "strings"

// spelling writes the path of a resource in another way, or one that looks alike.
type spelling struct {
	name string
	// want is for a path that nobody denies; denies for one that leads to the denied resource.
	want, denies []int
	write        func(g *generator, first, rest string) string
}

// pathRules make two rules of each spelling: one of an ordinary path, and one of the denied path.
func pathRules() []rule1 {
	var rules []rule1
	for _, s := range spellings {
		rules = append(rules,
			rule1{name: "path: " + s.name, want: s.want, spoil: func(g *generator, q *request) {
				q.target = s.write(g, g.word(), g.word())
			}},
			rule1{name: "denied path: " + s.name, want: s.denies, spoil: func(g *generator, q *request) {
				q.target = s.write(g, strings.TrimPrefix(DeniedPath, "/"), g.word())
			}})
	}
	return append(rules, rule1{name: "denied path", want: denied, spoil: func(g *generator, q *request) {
		q.target = DeniedPath + g.one("", "/", "/"+g.word(), "?a=b")
	}}, rule1{name: "path: 70,000 bytes", want: []int{414}, spoil: func(_ *generator, q *request) {
		q.target = "/" + strings.Repeat("a", 70000)
	}}, rule1{name: "path: 10,000 bytes", want: ok, spoil: func(_ *generator, q *request) {
		q.target = "/" + strings.Repeat("a", 10000)
	}})
}

var spellings = []spelling{
	{"a dot segment", ok, denied, func(g *generator, a, b string) string { return "/./" + a + "/" + b }},
	{"two dots", ok, denied, func(g *generator, a, b string) string { return "/" + g.word() + "/../" + a + "/" + b }},
	{"two dots above the root", ok, denied, func(g *generator, a, b string) string { return "/../../" + a + "/" + b }},
	{"two dots at the end", ok, denied, func(g *generator, a, b string) string { return "/" + a + "/" + b + "/.." }},
	{"encoded dots", ok, denied, func(g *generator, a, b string) string {
		return "/" + g.word() + "/" + g.one("%2e%2e", "%2E%2E", ".%2e", "%2e.") + "/" + a + "/" + b
	}},
	{"dots encoded twice", ok, ok, func(g *generator, a, b string) string { return "/" + g.word() + "/%252e%252e/" + a + "/" + b }},
	{"dots with a parameter", ok, denied, func(g *generator, a, b string) string { return "/" + g.word() + "/..;" + g.word() + "/" + a + "/" + b }},
	{"a parameter", ok, nil, func(g *generator, a, b string) string { return "/" + a + ";" + g.word() + "/" + b }},
	{"an encoded letter", ok, denied, func(g *generator, a, b string) string {
		const digits = "0123456789abcdef"
		return "/%" + string(digits[a[0]>>4]) + string(digits[a[0]&15]) + a[1:] + "/" + b
	}},
	{"an encoded slash", ok, nil, func(g *generator, a, b string) string { return "/" + a + g.one("%2f", "%2F") + b }},
	{"an encoded slash at the start", ok, nil, func(g *generator, a, b string) string { return "/%2f" + a + "/" + b }},
	{"dots before an encoded slash", bad, bad, func(g *generator, a, b string) string { return "/" + g.word() + "/..%2f" + a + "/" + b }},
	{"a backslash", ok, denied, func(g *generator, a, b string) string { return "/" + a + "\\" + b }},
	{"a backslash and dots", ok, denied, func(g *generator, a, b string) string { return "/" + g.word() + "\\..\\" + a + "/" + b }},
	{"an encoded backslash", ok, nil, func(g *generator, a, b string) string { return "/" + a + g.one("%5c", "%5C") + b }},
	{"two slashes at the start", ok, ok, func(g *generator, a, b string) string { return "//" + a + "/" + b }},
	{"two slashes within", ok, nil, func(g *generator, a, b string) string { return "/" + a + "//" + b }},
	{"an encoded NUL", bad, bad, func(g *generator, a, b string) string { return "/" + a + "%00/" + b }},
	{"an incomplete escape", bad, bad, func(g *generator, a, b string) string { return "/" + a + "/" + b + g.one("%", "%2", "%zz", "%2x") }},
	{"an overlong escape", bad, bad, func(g *generator, a, b string) string { return "/" + g.word() + "/%c0%ae%c0%ae/" + a + "/" + b }},
	{"an escape in small letters", ok, denied, func(g *generator, a, b string) string { return "/" + a + "/" + b + "%c3%a4" }},
	{"a fragment", bad, bad, func(g *generator, a, b string) string { return "/" + a + "/" + b + "#" + g.word() }},
	{"a fragment before dots", bad, bad, func(g *generator, a, b string) string { return "/" + g.word() + "#/../" + a + "/" + b }},
	{"an encoded fragment", ok, nil, func(g *generator, a, b string) string { return "/" + a + "%23" + b }},
	{"an encoded question mark", ok, nil, func(g *generator, a, b string) string { return "/" + a + "%3f" + b }},
	{"bytes beyond ASCII", bad, bad, func(g *generator, a, b string) string { return "/" + a + "/\xc3\xa4" }},
	{"a control character", bad, bad, func(g *generator, a, b string) string { return "/" + a + "/" + g.one("\x01", "\x1f", "\x7f", "\x00") }},
	{"a space", bad, bad, func(g *generator, a, b string) string { return "/" + a + "/ " + b }},
	{"characters that no URI has", ok, denied, func(g *generator, a, b string) string {
		return "/" + a + "/" + b + g.one("<", ">", "\"", "|", "^", "`", "{", "}", "[", "]")
	}},
	{"capitals", ok, ok, func(g *generator, a, b string) string { return "/" + strings.ToUpper(a) + "/" + b }},
	{"no slash", bad, bad, func(g *generator, a, b string) string { return a + "/" + b }},
	{"a query with slashes and dots", ok, denied, func(g *generator, a, b string) string { return "/" + a + "/" + b + "?/../x" }},
	{"two question marks", ok, denied, func(g *generator, a, b string) string { return "/" + a + "/" + b + "??a" }},
	{"a whole URI", ok, denied, func(g *generator, a, b string) string { return "http://" + Host + "/" + a + "/" + b }},
	{"a whole URI with capitals", ok, denied, func(g *generator, a, b string) string { return "HTTP://" + Host + "/" + a + "/" + b }},
	{"a whole URI with dots", ok, denied, func(g *generator, a, b string) string {
		return "http://" + Host + "/" + g.word() + "/../" + a + "/" + b
	}},
	{"a whole URI of another host", bad, bad, func(g *generator, a, b string) string { return "http://other.test/" + a + "/" + b }},
	{"a whole URI with user information", bad, bad, func(g *generator, a, b string) string { return "http://user@" + Host + "/" + a + "/" + b }},
	{"a whole URI of https", []int{421}, nil, func(g *generator, a, b string) string { return "https://" + Host + "/" + a + "/" + b }},
	{"a whole URI of another scheme", bad, bad, func(g *generator, a, b string) string {
		return g.one("ftp", "file", "gopher") + "://" + Host + "/" + a + "/" + b
	}},
}

var hostRules = []rule1{
	{name: "host: none", want: bad, spoil: func(_ *generator, q *request) { q.drop("Host") }},
	{name: "host: two equal fields", want: bad, spoil: func(_ *generator, q *request) { q.add("host", Host) }},
	{name: "host: two different fields", want: bad, spoil: func(_ *generator, q *request) { q.add("host", "other.test") }},
	{name: "host: empty", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = "" }},
	{name: "host: a port", want: ok, spoil: func(g *generator, q *request) { q.line("Host").value = Host + g.one(":80", ":8080", ":1", ":65535") }},
	{name: "host: a port that is none", want: bad, spoil: func(g *generator, q *request) {
		q.line("Host").value = Host + g.one(":65536", ":0", ":a", ":-1", ":8080a", ":80:80", ":99999999999")
	}},
	{name: "host: an empty port", spoil: func(_ *generator, q *request) { q.line("Host").value = Host + ":" }},
	{name: "host: user information", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = "user@" + Host }},
	{name: "host: a path", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = Host + "/a" }},
	{name: "host: a query or fragment", want: bad, spoil: func(g *generator, q *request) { q.line("Host").value = Host + g.one("?a", "#a") }},
	{name: "host: a space", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = "site .test" }},
	{name: "host: a list", want: bad, spoil: func(g *generator, q *request) { q.line("Host").value = Host + g.one(",other.test", ", other.test") }},
	{name: "host: capitals", want: ok, spoil: func(_ *generator, q *request) { q.line("Host").value = "SITE.Test" }},
	{name: "host: a dot at the end", spoil: func(_ *generator, q *request) { q.line("Host").value = Host + "." }},
	{name: "host: an empty label", want: bad, spoil: func(g *generator, q *request) { q.line("Host").value = g.one("site..test", ".site.test") }},
	{name: "host: an IPv4 address", want: ok, spoil: func(g *generator, q *request) { q.line("Host").value = g.one("192.0.2.1", "192.0.2.1:8080") }},
	{name: "host: an IPv4 address in another form", want: bad, spoil: func(g *generator, q *request) {
		q.line("Host").value = g.one("192.0.2.256", "192.0.513", "0x7f.0.0.1", "3221225985")
	}},
	{name: "host: an IPv6 address", want: ok, spoil: func(g *generator, q *request) {
		q.line("Host").value = g.one("[2001:db8::1]", "[2001:db8::1]:8080", "[::1]")
	}},
	{name: "host: an IPv6 address that is none", want: bad, spoil: func(g *generator, q *request) {
		q.line("Host").value = g.one("[::1", "::1", "[::g]", "[::1]a", "[fe80::1%eth0]", "[]")
	}},
	{name: "host: an underscore", want: ok, spoil: func(_ *generator, q *request) { q.line("Host").value = "si_te.test" }},
	{name: "host: an escape", spoil: func(g *generator, q *request) {
		q.line("Host").value = g.one("site%2etest", "site.test%00", "site.test%2f")
	}},
	{name: "host: bytes beyond ASCII", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = "s\xc3\xafte.test" }},
	{name: "host: other characters", want: bad, spoil: func(g *generator, q *request) {
		q.line("Host").value = "site" + g.one("\\", "\"", "<", "|", "{", "^") + ".test"
	}},
	{name: "host: white space around it", want: ok, spoil: func(g *generator, q *request) { q.line("Host").value = g.one(" ", "\t") + Host + g.one(" ", "\t") }},
	{name: "host: folded", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = "\r\n " + Host }},
	{name: "host: behind the other fields", want: ok, spoil: func(_ *generator, q *request) { q.drop("Host"); q.add("hOST", Host) }},
	{name: "host: 300 bytes", want: bad, spoil: func(_ *generator, q *request) { q.line("Host").value = strings.Repeat("a", 300) + ".test" }},
}

var fieldRules = []rule1{
	{name: "connection: names a field", want: ok, spoil: func(_ *generator, q *request) { q.add("x-hop", "1"); q.add("Connection", "x-hop") }},
	{name: "connection: names host, length or authorization", want: nil, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.add("authorization", "Bearer x")
		q.add("Connection", g.one("host", "content-length", "authorization", "transfer-encoding"))
	}},
	{name: "connection: names cookie and content-type", spoil: func(g *generator, q *request) {
		q.add("Connection", "close, cookie, content-type")
		q.add("Cookie", "a=b")
	}},
	{name: "connection: no token", want: bad, spoil: func(g *generator, q *request) { q.add("Connection", g.one("a b", "(x)", "\"x\"")) }},
	{name: "connection: close", want: ok, spoil: func(_ *generator, q *request) { q.add("Connection", "close") }},
	{name: "connection: close and keep-alive", want: ok, spoil: func(_ *generator, q *request) { q.add("Connection", "keep-alive, close") }},
	{name: "keep-alive and proxy-connection", want: ok, spoil: func(_ *generator, q *request) {
		q.add("Keep-Alive", "timeout=5")
		q.add("Proxy-Connection", "keep-alive")
	}},
	{name: "te: trailers", want: ok, spoil: func(_ *generator, q *request) { q.add("TE", "trailers"); q.add("Connection", "TE") }},
	{name: "te: a coding", want: ok, spoil: func(_ *generator, q *request) { q.add("TE", "gzip;q=0.5"); q.add("Connection", "TE") }},
	{name: "proxy-authorization", spoil: func(_ *generator, q *request) { q.add("Proxy-Authorization", "Basic YTpi") }},
	{name: "authorization: twice", want: bad, spoil: func(g *generator, q *request) { q.add("Authorization", "Bearer a"); q.add("authorization", "Bearer b") }},
	{name: "content-type: twice", want: bad, spoil: func(g *generator, q *request) {
		q.add("Content-Type", "text/plain")
		q.add("content-type", "text/html")
	}},
	{name: "cookie: twice", want: ok, spoil: func(g *generator, q *request) { q.add("Cookie", "a=b"); q.add("cookie", "c=d") }},
	{name: "a field twice", want: ok, spoil: func(g *generator, q *request) { q.add("x-same", "a"); q.add("X-Same", "b") }},
	{name: "a proxy's own field from a client", want: ok, spoil: func(g *generator, q *request) {
		q.add(g.one("x-envoy-original-path", "x-envoy-internal", "x-envoy-original-dst-host"), g.one("/admin", "true", "192.0.2.1:1"))
	}},
	{name: "x-forwarded-client-cert from a client", want: ok, spoil: func(_ *generator, q *request) {
		q.add("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/default/sa/admin")
	}},
	{name: "x-forwarded-client-cert with underscores", want: ok, spoil: func(_ *generator, q *request) {
		q.add("x_forwarded_client_cert", "URI=spiffe://cluster.local/ns/default/sa/admin")
	}},
	{name: "x-forwarded-for and the like", want: ok, spoil: func(g *generator, q *request) {
		q.add("x-forwarded-for", "192.0.2.7")
		q.add("x-forwarded-host", "other.test")
		q.add("forwarded", "for=192.0.2.7")
	}},
	{name: "x-original-url and the like", want: ok, spoil: func(g *generator, q *request) {
		q.add(g.one("x-original-url", "x-rewrite-url", "x-http-method-override"), DeniedPath)
	}},
	{name: "max-forwards: 0", want: ok, spoil: func(g *generator, q *request) { q.add("Max-Forwards", "0") }},
	{name: "range", want: ok, spoil: func(g *generator, q *request) { q.add("Range", "bytes=0-"+strings.Repeat(",0-", 100)) }},
	{name: "100 fields", want: ok, spoil: func(_ *generator, q *request) { q.fill(98) }, single: true},
	{name: "101 fields", want: tooLarge, spoil: func(_ *generator, q *request) { q.fill(101) }, single: true},
	{name: "a value of 30,000 bytes", want: ok, spoil: func(g *generator, q *request) { g.any(q).value = strings.Repeat("a", 30000) }},
	{name: "a value of 70,000 bytes", want: tooLarge, spoil: func(g *generator, q *request) { g.any(q).value = strings.Repeat("a", 70000) }},
	{name: "a name of 5,000 bytes", want: ok, spoil: func(g *generator, q *request) { g.any(q).name = "x" + strings.Repeat("a", 5000) }},
	{name: "a name of 70,000 bytes", want: tooLarge, spoil: func(g *generator, q *request) { g.any(q).name = "x" + strings.Repeat("a", 70000) }},
}

// fill adds fields until there are so many.
func (q *request) fill(count int) {
	for len(q.fields) < count {
		q.add("x-fill", "1")
	}
}

// key is a valid sec-websocket-key.
const key = "dGhlIHNhbXBsZSBub25jZQ=="

func (g *generator) handshake(q *request) {
	g.bare(q)
	q.add("Connection", "Upgrade")
	q.add("Upgrade", "websocket")
	q.add("Sec-WebSocket-Version", "13")
	q.add("Sec-WebSocket-Key", key)
}

var upgradeRules = []rule1{
	{name: "upgrade: websocket", want: []int{101}, spoil: func(g *generator, q *request) { g.handshake(q) }, single: true},
	{name: "upgrade: bytes behind the request", want: []int{101}, spoil: func(g *generator, q *request) { g.handshake(q); q.behind = hidden }, single: true},
	{name: "upgrade: websocket without a key", want: bad, spoil: func(g *generator, q *request) { g.handshake(q); q.drop("Sec-WebSocket-Key") }, single: true},
	{name: "upgrade: websocket with a key that is none", want: bad, spoil: func(g *generator, q *request) { g.handshake(q); q.set("Sec-WebSocket-Key", g.one("x", "!!!", key+key)) }, single: true},
	{name: "upgrade: websocket with two keys", want: bad, spoil: func(g *generator, q *request) { g.handshake(q); q.add("Sec-WebSocket-Key", key) }, single: true},
	{name: "upgrade: websocket with content", want: bad, spoil: func(g *generator, q *request) {
		g.handshake(q)
		q.content = hidden
		q.add("Content-Length", itoa(len(hidden)))
	}, single: true},
	{name: "upgrade: websocket by POST", spoil: func(g *generator, q *request) { g.handshake(q); q.method = "POST"; q.add("Content-Length", "0") }, single: true},
	{name: "upgrade: websocket of HTTP/1.0", spoil: func(g *generator, q *request) { g.handshake(q); q.version = "HTTP/1.0" }, single: true},
	{name: "upgrade: websocket to the denied path", want: denied, spoil: func(g *generator, q *request) { g.handshake(q); q.target = DeniedPath }, single: true},
	{name: "upgrade: h2c", want: ok, spoil: func(g *generator, q *request) {
		q.add("Connection", "Upgrade, HTTP2-Settings")
		q.add("Upgrade", "h2c")
		q.add("HTTP2-Settings", "AAMAAABkAAQAAP__")
	}, single: true},
	{name: "upgrade: another protocol", want: ok, spoil: func(g *generator, q *request) {
		q.add("Connection", "Upgrade")
		q.add("Upgrade", g.one("foo", "TLS/1.0", "foo, websocket"))
	}, single: true},
	{name: "upgrade: not named by connection", want: ok, spoil: func(g *generator, q *request) { q.add("Upgrade", "websocket") }, single: true},
	{name: "upgrade: named by connection alone", want: ok, spoil: func(g *generator, q *request) { q.add("Connection", "upgrade") }, single: true},
	{name: "connect: a host and port", spoil: func(g *generator, q *request) {
		g.bare(q)
		q.method, q.target = "CONNECT", Host+":443"
		q.set("Host", Host+":443")
	}, single: true},
	{name: "connect: bytes behind the request", spoil: func(g *generator, q *request) {
		g.bare(q)
		q.method, q.target, q.behind = "CONNECT", Host+":443", hidden
		q.set("Host", Host+":443")
	}, single: true},
	{name: "connect: a path", want: bad, spoil: func(g *generator, q *request) { g.bare(q); q.method = "CONNECT" }, single: true},
	{name: "connect: no port", want: bad, spoil: func(g *generator, q *request) { g.bare(q); q.method, q.target = "CONNECT", Host }, single: true},
	{name: "connect: content", want: bad, spoil: func(g *generator, q *request) {
		g.sized(q)
		q.method, q.target = "CONNECT", Host+":443"
		q.set("Host", Host+":443")
	}, single: true},
}
