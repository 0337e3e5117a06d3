package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveHTTP2 reads requests as frames, judges them by RFC 9113 section 8, and answers each with its end.
func (l *Lane) serveHTTP2(conn net.Conn, in *bufio.Reader) {
	start := make([]byte, len(preface))
	if _, err := io.ReadFull(in, start); err != nil || string(start) != preface {
		l.keep(Record{Fault: "the HTTP/2 preface is wrong"})
		return
	}
	framer := http2.NewFramer(conn, in)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = maxHead
	if framer.WriteSettings() != nil {
		return
	}
	var block bytes.Buffer
	answer := hpack.NewEncoder(&block)
	open := map[uint32]*Record{}
	defer func() {
		for _, r := range open {
			r.Partial = true
			l.keep(*r)
		}
	}()
	finish := func(stream uint32) error {
		r := open[stream]
		delete(open, stream)
		if r.Fault == "" && len(r.Fields["content-length"]) > 0 {
			if length, err := decimal(r.first("content-length")); err != nil || length != uint64(len(r.Content)) {
				r.Fault = "content-length is not the length of the content"
			}
		}
		l.keep(*r)
		block.Reset()
		status := "200"
		if r.Fault != "" {
			status = "400"
		}
		if err := answer.WriteField(hpack.HeaderField{Name: ":status", Value: status}); err != nil {
			return err
		}
		return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	for {
		frame, err := framer.ReadFrame()
		if streamError := (http2.StreamError{}); errors.As(err, &streamError) {
			l.keep(Record{Protocol: "HTTP/2", Fault: "HTTP/2: " + streamError.Error()})
			return
		}
		if connectionError := http2.ConnectionError(0); errors.As(err, &connectionError) {
			l.keep(Record{Protocol: "HTTP/2", Fault: "HTTP/2: " + connectionError.Error()})
			return
		}
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = framer.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			r, trailers := open[f.StreamID]
			if trailers {
				r.trailers(f)
			} else {
				r = http2Head(f)
				open[f.StreamID] = r
			}
			if f.StreamEnded() {
				err = finish(f.StreamID)
			}
		case *http2.DataFrame:
			if r := open[f.StreamID]; r != nil {
				r.Content += string(f.Data())
				if n := f.Header().Length; n > 0 {
					if err = framer.WriteWindowUpdate(0, n); err == nil {
						err = framer.WriteWindowUpdate(f.StreamID, n)
					}
				}
				if err == nil && f.StreamEnded() {
					err = finish(f.StreamID)
				}
			}
		case *http2.RSTStreamFrame:
			if r := open[f.StreamID]; r != nil {
				r.Partial = true
				l.keep(*r)
				delete(open, f.StreamID)
			}
		case *http2.GoAwayFrame:
			// The proxy opens no more streams, and closes.
		}
		if err != nil {
			return
		}
	}
}

// http2Head reads the fields of a request.
func http2Head(f *http2.MetaHeadersFrame) *Record {
	r := &Record{Protocol: "HTTP/2", Fields: map[string][]string{}, Method: f.PseudoValue("method"), Target: f.PseudoValue("path"), Host: f.PseudoValue("authority")}
	for _, field := range f.RegularFields() {
		r.Fields[field.Name] = append(r.Fields[field.Name], field.Value)
	}
	for _, name := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"} {
		if len(r.Fields[name]) > 0 {
			r.Fault = "HTTP/2 has the field " + name
		}
	}
	switch host := r.Fields["host"]; {
	case f.Truncated:
		r.Fault = "the head is too long"
	case r.Fault != "":
	case !isToken(r.Method):
		r.Fault = "the method is no token"
	case r.Method != "CONNECT" && checkTarget(r.Method, r.Target) != nil:
		r.Fault = strings.TrimPrefix(checkTarget(r.Method, r.Target).Error(), "fault: ")
	case len(r.Fields["content-length"]) > 1:
		r.Fault = "the head has several content-length fields"
	case len(host) > 1 || len(host) == 1 && r.Host != "" && host[0] != r.Host:
		r.Fault = "host and :authority differ"
	}
	return r
}

func (r *Record) trailers(f *http2.MetaHeadersFrame) {
	if len(f.PseudoFields()) > 0 {
		r.Fault = "trailers have pseudo-header fields"
	}
	for _, field := range f.RegularFields() {
		r.Fields["trailer "+field.Name] = append(r.Fields["trailer "+field.Name], field.Value)
	}
}
