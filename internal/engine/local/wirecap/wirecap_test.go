package wirecap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	mathrand "math/rand"
	"net"
	"net/netip"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// frame builds an Ethernet frame around a TCP segment.
func frame(src, dst string, seq uint32, flags byte, payload []byte) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	b := make([]byte, 54, 54+len(payload))
	binary.BigEndian.PutUint16(b[12:], etherIPv4)
	b[14] = 0x45
	binary.BigEndian.PutUint16(b[16:], uint16(40+len(payload)))
	b[23] = ipProtoTCP
	copy(b[26:], s.Addr().AsSlice())
	copy(b[30:], d.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[34:], s.Port())
	binary.BigEndian.PutUint16(b[36:], d.Port())
	binary.BigEndian.PutUint32(b[38:], seq)
	b[46] = 5 << 4
	b[47] = flags
	return append(b, payload...)
}

const (
	client = "10.244.1.2:40000"
	server = "10.244.2.2:8080"
)

// talk is a conversation cut into segments.
type talk struct {
	a        *Analyser
	seq, ack uint32
}

func opened(t *testing.T) *talk {
	t.Helper()
	c := &talk{a: NewAnalyser(), seq: 1<<32 - 5, ack: 77} // sequence numbers wrap
	c.a.Add(frame(client, server, c.seq, flagSYN, nil))
	c.a.Add(frame(server, client, c.ack, flagSYN|flagACK, nil))
	c.seq++
	c.ack++
	return c
}

func (c *talk) out(b []byte) {
	c.a.Add(frame(client, server, c.seq, flagACK, b))
	c.seq += uint32(len(b))
}
func (c *talk) in(b []byte) {
	c.a.Add(frame(server, client, c.ack, flagACK, b))
	c.ack += uint32(len(b))
}

func (c *talk) only(t *testing.T) api.CapturedConn {
	t.Helper()
	got := c.a.Connections()
	if len(got) != 1 {
		t.Fatalf("%d connections: %+v", len(got), got)
	}
	return got[0]
}

func record(kind byte, n int) []byte {
	b := append([]byte{kind, 3, 3, byte(n >> 8), byte(n)}, make([]byte, n)...)
	_, _ = rand.Read(b[5:])
	return b
}

func TestClasses(t *testing.T) {
	hello, data := record(22, 300), record(23, 5000)
	for name, tc := range map[string]struct {
		talk func(*talk)
		want api.Class
	}{
		"nothing said":                  {func(*talk) {}, api.ClassEmpty},
		"TLS":                           {func(c *talk) { c.out(hello); c.in(data); c.out(data) }, api.ClassTLS},
		"TLS one way only":              {func(c *talk) { c.out(hello) }, api.ClassTLS},
		"a record in small pieces":      {func(c *talk) { c.out(hello[:7]); c.out(hello[7:8]); c.out(hello[8:]) }, api.ClassTLS},
		"a header cut in two":           {func(c *talk) { c.out(append(bytes.Clone(hello), data[:3]...)); c.out(data[3:]) }, api.ClassTLS},
		"two records in one segment":    {func(c *talk) { c.out(append(bytes.Clone(hello), data...)) }, api.ClassTLS},
		"repeated segment":              {func(c *talk) { c.out(hello); c.seq -= uint32(len(hello)); c.out(hello); c.out(data) }, api.ClassTLS},
		"overlapping segment":           {func(c *talk) { c.out(hello); c.seq -= 10; c.out(append(bytes.Clone(hello[295:]), data...)) }, api.ClassTLS},
		"HTTP request":                  {func(c *talk) { c.out([]byte("GET / HTTP/1.1\r\n\r\n")) }, api.ClassHTTP},
		"HTTP answer alone":             {func(c *talk) { c.in([]byte("HTTP/1.1 200 OK\r\n\r\n")) }, api.ClassHTTP},
		"HTTP/2 in clear":               {func(c *talk) { c.out([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) }, api.ClassHTTP},
		"something else":                {func(c *talk) { c.out([]byte("\x00\x00\x00\x10hello")) }, api.ClassPlaintext},
		"plaintext after TLS":           {func(c *talk) { c.out(hello); c.out([]byte("secret=1234567890")) }, api.ClassPlaintext},
		"TLS one way, plaintext back":   {func(c *talk) { c.out(hello); c.in([]byte("oops, in the clear")) }, api.ClassPlaintext},
		"looks like TLS, wrong version": {func(c *talk) { c.out([]byte{22, 3, 9, 0, 1, 0}) }, api.ClassPlaintext},
		"looks like TLS, too long":      {func(c *talk) { c.out([]byte{23, 3, 3, 0xff, 0xff, 0}) }, api.ClassPlaintext},
	} {
		c := opened(t)
		tc.talk(c)
		got := c.only(t)
		if got.Class != tc.want || !got.SawSYN || got.Src != client || got.Dst != server || got.Port != 8080 {
			t.Errorf("%s: got %+v, want %s", name, got, tc.want)
		}
	}
}

func TestConnectionRecordedFromItsMiddle(t *testing.T) {
	big := record(23, 4000)
	tls := &talk{a: NewAnalyser(), seq: 5, ack: 9}
	tls.out(big[2000:]) // the tail of a record, which could be anything
	tls.out(record(23, 100))
	tls.in(record(23, 100))
	if got := tls.only(t); got.Class != api.ClassTLS || got.SawSYN || got.Src != client {
		t.Errorf("TLS: got %+v", got)
	}
	plain := &talk{a: NewAnalyser(), seq: 5, ack: 9}
	plain.in([]byte("<html> the middle of a page"))
	plain.out([]byte("GET /next HTTP/1.1\r\n\r\n"))
	if got := plain.only(t); got.Class != api.ClassHTTP {
		t.Errorf("HTTP: got %+v", got)
	}
	other := &talk{a: NewAnalyser(), seq: 5, ack: 9}
	other.out([]byte("no protocol that is known here"))
	if got := other.only(t); got.Class != api.ClassPlaintext {
		t.Errorf("other: got %+v", got)
	}
}

func TestGapDoesNotTurnTLSIntoPlaintext(t *testing.T) {
	c := opened(t)
	c.out(record(22, 100))
	lost := record(23, 1000)
	c.seq += 600
	c.out(lost[600:])
	c.out(record(23, 50))
	if got := c.only(t); got.Class != api.ClassTLS {
		t.Errorf("got %+v", got)
	}
}

func TestSamePortsAgainAreAnotherConnection(t *testing.T) {
	c := opened(t)
	c.out([]byte("GET / HTTP/1.1\r\n\r\n"))
	again := &talk{a: c.a, seq: 1000, ack: 2000}
	c.a.Add(frame(client, server, 999, flagSYN, nil))
	again.out(record(22, 10))
	got := c.a.Connections()
	if len(got) != 2 || got[0].Class == got[1].Class {
		t.Errorf("got %+v", got)
	}
}

// Every way to cut a real TLS conversation into segments is TLS.
func TestRealTLSHoweverItIsCut(t *testing.T) {
	toServer, toClient := recordTLS(t)
	for seed := range int64(50) {
		rng := mathrand.New(mathrand.NewSource(seed))
		c := opened(t)
		for a, b := toServer, toClient; len(a)+len(b) > 0; {
			if len(a) > 0 {
				n := 1 + rng.Intn(min(len(a), 700))
				c.out(a[:n])
				a = a[n:]
			}
			if len(b) > 0 {
				n := 1 + rng.Intn(min(len(b), 700))
				c.in(b[:n])
				b = b[n:]
			}
		}
		if got := c.only(t); got.Class != api.ClassTLS || got.BytesSent != len(toServer) || got.BytesRecv != len(toClient) {
			t.Fatalf("seed %d: got %+v", seed, got)
		}
	}
}

// recordTLS has Go's TLS talk to itself and returns the bytes of both directions.
func recordTLS(t *testing.T) (toServer, toClient []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	up, down := &tee{Conn: a}, &tee{Conn: b}
	srv := tls.Server(down, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	cli := tls.Client(up, &tls.Config{InsecureSkipVerify: true}) // the certificate is not what is tested
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(srv, io.LimitReader(srv, 5000))
		done <- err
	}()
	go cli.Write(make([]byte, 5000))
	if _, err := io.ReadFull(cli, make([]byte, 5000)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	a.Close()
	return up.wrote.Bytes(), down.wrote.Bytes()
}

type tee struct {
	net.Conn
	wrote bytes.Buffer
}

func (t *tee) Write(b []byte) (int, error) {
	t.wrote.Write(b)
	return t.Conn.Write(b)
}

func FuzzAnalyser(f *testing.F) {
	f.Add(frame(client, server, 1, flagSYN, nil))
	f.Add(frame(client, server, 1, flagACK, []byte("GET / HTTP/1.1\r\n\r\n")))
	f.Add(frame(server, client, 1, flagACK, record(23, 10)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		a := NewAnalyser()
		a.Add(in)
		for i := 0; i+60 <= len(in); i += 30 { // and its parts, so that several frames meet in one connection
			a.Add(in[i:])
			a.Add(in[:i])
		}
		for _, c := range a.Connections() {
			if c.BytesSent < 0 || c.BytesRecv < 0 || len(c.Sample) > sampleSize {
				t.Fatalf("%+v", c)
			}
		}
	})
}

func TestPcapIsReadableByOthers(t *testing.T) {
	var b bytes.Buffer
	w, err := NewPcapWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	fr := frame(client, server, 1, flagSYN, nil)
	at := time.Unix(1700000000, 123456789)
	if err := w.Write(at, fr); err != nil {
		t.Fatal(err)
	}
	got := b.Bytes()
	le := binary.LittleEndian
	if len(got) != 24+16+len(fr) || le.Uint32(got) != 0xa1b23c4d || le.Uint16(got[4:]) != 2 || le.Uint32(got[20:]) != 1 {
		t.Fatalf("header % x", got[:24])
	}
	if le.Uint32(got[24:]) != 1700000000 || le.Uint32(got[28:]) != 123456789 || int(le.Uint32(got[32:])) != len(fr) || !bytes.Equal(got[40:], fr) {
		t.Errorf("packet % x", got[24:])
	}
}

// frame6 is frame over IPv6, with a jumbo header if asked.
func frame6(src, dst string, jumbo bool, payload []byte) []byte {
	v4 := frame("1.1.1.1:"+src, "2.2.2.2:"+dst, 1, flagACK, payload)
	b := make([]byte, ethHeader+40)
	binary.BigEndian.PutUint16(b[12:], etherIPv6)
	b[ethHeader], b[ethHeader+6] = 0x60, ipProtoTCP
	copy(b[ethHeader+8:], netip.MustParseAddr("fd00::1").AsSlice())
	copy(b[ethHeader+24:], netip.MustParseAddr("fd00::2").AsSlice())
	if jumbo {
		b[ethHeader+6] = 0
		b = append(b, ipProtoTCP, 0, 0xc2, 4, 0, 0, 0, 0)
	} else {
		binary.BigEndian.PutUint16(b[ethHeader+4:], uint16(20+len(payload)))
	}
	return append(b, v4[34:]...)
}

func TestReadsIPv6(t *testing.T) {
	for _, jumbo := range []bool{false, true} {
		f := frame6("40000", "8080", jumbo, []byte("hello"))
		s, ok := parse(f)
		if !ok || s.src.String() != "[fd00::1]:40000" || s.dst.String() != "[fd00::2]:8080" || string(s.payload) != "hello" {
			t.Errorf("jumbo %v: %+v, %v", jumbo, s, ok)
		}
		for i := range f {
			parse(f[:i]) // never panics
		}
	}
	fragment := frame6("40000", "8080", false, nil)
	fragment[ethHeader+6] = 44
	if _, ok := parse(fragment); ok {
		t.Error("a fragment is no whole segment")
	}
}
