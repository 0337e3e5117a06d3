package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errFault is wrapped by errors that name what is wrong with a message.
var errFault = errors.New("fault")

func fault(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFault, fmt.Sprintf(format, args...))
}

// maxHead is beyond what any proxy under test forwards.
const maxHead = 256 << 10

// readHead reads up to the empty line. Every line ends with CR and LF (RFC 9112 section 2.2). An error comes with what was read.
func readHead(in *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := in.ReadSlice('\n')
		head = append(head, line...)
		if errors.Is(err, bufio.ErrBufferFull) {
			return head, fault("a line is too long")
		}
		if err != nil {
			return head, err
		}
		if !bytes.HasSuffix(line, []byte("\r\n")) {
			return head, fault("a line ends with LF alone")
		}
		if len(head) > maxHead {
			return head, fault("the head is too long")
		}
		if len(line) == 2 {
			return head[:len(head)-2], nil
		}
	}
}

// framing says how content follows a head.
type framing struct {
	chunked bool
	length  uint64
}

// parseHead reads the request line and the fields (RFC 9112 sections 3, 5 and 6.3).
func (r *Record) parseHead(head []byte) (framing, error) {
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n"), "\r\n")
	words := strings.Split(lines[0], " ")
	if len(words) != 3 {
		return framing{}, fault("the request line has %d words", len(words))
	}
	r.Method, r.Target, r.Protocol = words[0], words[1], words[2]
	if !isToken(r.Method) {
		return framing{}, fault("the method is no token")
	}
	if r.Protocol != "HTTP/1.1" && r.Protocol != "HTTP/1.0" {
		return framing{}, fault("the version is %q", r.Protocol)
	}
	if err := checkTarget(r.Method, r.Target); err != nil {
		return framing{}, err
	}
	for _, line := range lines[1:] {
		name, value, err := parseField(line)
		if err != nil {
			return framing{}, err
		}
		r.Fields[name] = append(r.Fields[name], value)
	}
	hosts := r.Fields["host"]
	if len(hosts) != 1 && (r.Protocol == "HTTP/1.1" || len(hosts) > 1) {
		return framing{}, fault("the head has %d host fields", len(hosts))
	}
	r.Host = r.first("host")
	return r.framing()
}

func (r *Record) framing() (framing, error) {
	lengths, codings := r.Fields["content-length"], r.Fields["transfer-encoding"]
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return framing{}, fault("the head has content-length and transfer-encoding")
	case len(codings) > 0:
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return framing{}, fault("transfer-encoding is %q", codings)
		}
		if r.Protocol == "HTTP/1.0" {
			return framing{}, fault("HTTP/1.0 has transfer-encoding")
		}
		return framing{chunked: true}, nil
	case len(lengths) > 1:
		return framing{}, fault("the head has %d content-length fields", len(lengths))
	case len(lengths) == 1:
		length, err := decimal(lengths[0])
		return framing{length: length}, err
	}
	return framing{}, nil
}

func decimal(text string) (uint64, error) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, fault("content-length is %q", text)
		}
	}
	length, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fault("content-length is %q", text)
	}
	return length, nil
}

func checkTarget(method, target string) error {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return fault("the target has the byte %#x", c)
		}
	}
	switch {
	case target == "":
		return fault("the target is empty")
	case method == "CONNECT":
		if strings.ContainsAny(target, "/?") {
			return fault("the target of CONNECT is %q", target)
		}
	case strings.HasPrefix(target, "/"), target == "*" && method == "OPTIONS", strings.Contains(target, "://"):
	default:
		return fault("the target is %q", target)
	}
	return nil
}

// parseField reads a field line (RFC 9112 section 5).
func parseField(line string) (name, value string, err error) {
	name, value, found := strings.Cut(line, ":")
	if !found || !isToken(name) {
		return "", "", fault("a field line has no name: %.40q", line)
	}
	value = strings.Trim(value, " \t")
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", "", fault("the value of %s has the byte %#x", name, c)
		}
	}
	return strings.ToLower(name), value, nil
}

func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}

// maxContent is beyond what any case sends.
const maxContent = 64 << 20

func (r *Record) readContent(in *bufio.Reader, f framing) error {
	if !f.chunked {
		var content strings.Builder
		n, err := io.CopyN(&content, in, int64(min(f.length, maxContent)))
		r.Content = content.String()
		if err == nil && uint64(n) < f.length {
			return fault("the content is too long")
		}
		return err
	}
	var content strings.Builder
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, isLine := strings.CutSuffix(string(line), "\r\n")
		if !isLine || strings.Contains(size, "\r") {
			return fault("a chunk line ends with LF alone")
		}
		size, _, _ = strings.Cut(size, ";")
		length, err := strconv.ParseUint(size, 16, 31)
		if err != nil || strings.ContainsAny(size, "+-_") {
			return fault("a chunk size is %q", size)
		}
		if length == 0 {
			break
		}
		if content.Len()+int(length) > maxContent {
			return fault("the content is too long")
		}
		if _, err := io.CopyN(&content, in, int64(length)); err != nil {
			return err
		}
		var end [2]byte
		if _, err := io.ReadFull(in, end[:]); err != nil {
			return err
		}
		if string(end[:]) != "\r\n" {
			return fault("a chunk is longer than its size")
		}
	}
	r.Content = content.String()
	trailers, err := readHead(in)
	if err != nil || len(trailers) == 0 {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(trailers), "\r\n"), "\r\n") {
		name, value, err := parseField(line)
		if err != nil {
			return err
		}
		r.Fields["trailer "+name] = append(r.Fields["trailer "+name], value)
	}
	return nil
}
