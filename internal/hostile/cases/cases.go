// Package cases makes hostile requests from a seed: HTTP/1.1 by a grammar and its violations, HTTP/2 as raw frames. It sends nothing.
package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/hostile/upstream"
)

// Host is the host of requests whose rule is about something else.
const Host = "site.test"

// Paths with a meaning.
const (
	// ClosingPath is that of the request behind each case. It asks for the end of the connection.
	ClosingPath = "/end"
	// HiddenPath is that of requests which stand where content is.
	HiddenPath = "/smuggled"
	// DeniedPath and all below it are denied to everybody by a policy of each proxy.
	DeniedPath = "/admin"
)

// Case is what one connection sends.
type Case struct {
	// Number is unique in a run.
	Number int
	// Rules are the names of the rules that made the case: one, or two at once.
	Rules []string
	HTTP2 bool
	// Bytes are all that the client sends.
	Bytes []byte
	// Requests is how many requests a strict reader finds at most, the closing one apart.
	Requests int
	// Names are the fields whose values reach an upstream unchanged, in lower case and sorted.
	Names []string
	// Want are the statuses with which this mesh may answer first. Without one, any status is right.
	Want []int
	// Timing says that the outcome depends on what a proxy does first, so that proxies cannot be compared.
	Timing bool
}

// Generate makes so many cases. The same seed makes the same cases.
func Generate(seed uint64, count int) []Case {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	list := make([]Case, 0, count)
	for number := 1; number <= count; number++ {
		g.number = number
		switch {
		case number%5 == 0:
			list = append(list, g.http2(rules2[number/5%len(rules2)]))
		case number%11 == 0:
			// Two rules at once, for what no request may ever bring about.
			first, second := rules1[g.IntN(len(rules1))], rules1[g.IntN(len(rules1))]
			if first.name == second.name || first.single || second.single {
				second = rule1{}
			}
			list = append(list, g.http1(first, second))
		default:
			list = append(list, g.http1(rules1[(number-number/5-number/11)%len(rules1)], rule1{}))
		}
	}
	return list
}

// Rules returns the names of all rules, those of HTTP/1 first.
func Rules() []string {
	var names []string
	for _, r := range rules1 {
		names = append(names, r.name)
	}
	for _, r := range rules2 {
		names = append(names, r.name)
	}
	return names
}

type generator struct {
	*rand.Rand
	number int
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

// word is a path segment or value without meaning. It does not begin with a dot.
func (g *generator) word() string {
	const first, letters = "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789-_.~"
	word := []byte{first[g.IntN(len(first))]}
	for range g.IntN(6) {
		word = append(word, letters[g.IntN(len(letters))])
	}
	return string(word)
}

func (g *generator) path() string {
	var path strings.Builder
	for range 1 + g.IntN(3) {
		path.WriteString("/" + g.word())
	}
	if g.IntN(3) == 0 {
		path.WriteString("?" + g.word() + "=" + g.word())
	}
	return path.String()
}

// field is a field line with its colon and its end.
type field struct{ name, colon, value, end string }

// request is an HTTP/1 message in pieces, so that a rule can spoil one of them.
type request struct {
	before, method, gap1, target, gap2, version, end string

	fields  []field
	headEnd string
	// content is as it stands on the wire, chunk lines and trailers included. chunks are its pieces if it is chunked.
	content string
	behind  string
	// requests is how many a strict reader finds at most.
	requests int
}

// base is a valid request.
func (g *generator) base() *request {
	q := &request{gap1: " ", gap2: " ", version: "HTTP/1.1", end: "\r\n", headEnd: "\r\n", requests: 1}
	q.method = g.one("GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
	q.target = g.path()
	q.add("Host", Host)
	q.add(upstream.CaseField, fmt.Sprint(g.number))
	for range g.IntN(3) {
		q.add("x-"+g.one("one", "two", "three", "four"), g.word())
	}
	if g.IntN(4) == 0 {
		q.add("Accept", "*/*")
	}
	switch q.method {
	case "POST", "PUT", "PATCH":
		if g.IntN(3) == 0 {
			g.chunked(q)
		} else {
			g.sized(q)
		}
	}
	return q
}

// sized gives a request content with a length.
func (g *generator) sized(q *request) {
	q.drop("Content-Length")
	q.drop("Transfer-Encoding")
	q.method = g.one("POST", "PUT", "PATCH")
	q.content = strings.Repeat(g.word(), 1+g.IntN(4))
	q.add("Content-Length", fmt.Sprint(len(q.content)))
}

// chunked gives a request content in chunks.
func (g *generator) chunked(q *request) {
	q.drop("Content-Length")
	q.drop("Transfer-Encoding")
	q.method = g.one("POST", "PUT", "PATCH")
	q.add("Transfer-Encoding", "chunked")
	q.content = ""
	for range 1 + g.IntN(3) {
		data := g.word()
		q.content += fmt.Sprintf("%x\r\n%s\r\n", len(data), data)
	}
	q.content += "0\r\n\r\n"
}

func (q *request) add(name, value string) {
	q.fields = append(q.fields, field{name, ": ", value, "\r\n"})
}

func (q *request) drop(name string) {
	q.fields = slices.DeleteFunc(q.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

// set gives a field this value alone.
func (q *request) set(name, value string) {
	q.drop(name)
	q.add(name, value)
}

// line is the field of a name, which is there.
func (q *request) line(name string) *field {
	i := slices.IndexFunc(q.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
	if i < 0 {
		q.add(name, "1")
		i = len(q.fields) - 1
	}
	return &q.fields[i]
}

// any is one of the lines without a meaning.
func (g *generator) any(q *request) *field {
	name := "x-any"
	q.add(name, g.word())
	f := q.fields[len(q.fields)-1]
	q.fields = slices.Insert(q.fields[:len(q.fields)-1], g.IntN(len(q.fields)), f)
	return q.line(name)
}

// encode writes the message.
func (q *request) encode() string {
	var out strings.Builder
	for _, part := range []string{q.before, q.method, q.gap1, q.target, q.gap2, q.version, q.end} {
		out.WriteString(part)
	}
	for _, f := range q.fields {
		out.WriteString(f.name + f.colon + f.value + f.end)
	}
	out.WriteString(q.headEnd + q.content + q.behind)
	return out.String()
}

// closing is the request behind each case of HTTP/1.
const closing = "GET " + ClosingPath + " HTTP/1.1\r\nHost: " + Host + "\r\nConnection: close\r\n\r\n"

func (g *generator) http1(first, second rule1) Case {
	q := g.base()
	c := Case{Number: g.number, Want: first.want, Timing: first.timing || second.timing}
	for _, r := range []rule1{first, second} {
		if r.spoil != nil {
			r.spoil(g, q)
			c.Rules = append(c.Rules, r.name)
		}
	}
	if len(c.Rules) > 1 {
		c.Want = nil
	}
	c.Requests = q.requests
	c.Bytes = []byte(q.encode() + closing)
	for _, f := range q.fields {
		c.Names = append(c.Names, f.name)
	}
	c.Names = compared(c.Names)
	return c
}

// perHop are fields that a proxy replaces or removes by itself, or that another part of the comparison is about.
var perHop = []string{
	"host", "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect",
	"sec-websocket-key", "http2-settings", "via",
}

// compared are those of the names that reach an upstream as they are.
func compared(names []string) []string {
	var list []string
	for _, name := range names {
		name = strings.ToLower(name)
		if name != "" && !strings.HasPrefix(name, ":") && !slices.Contains(perHop, name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
