package report

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

const (
	// The encoding's first word, without the bits that say how long a counter may be.
	cookiePlain      = uint32(hdrhistogram.V2EncodingCookieBase)
	cookieCompressed = uint32(hdrhistogram.V2CompressedEncodingCookieBase)
	cookieBits       = uint32(0xf0)

	headerBytes = hdrhistogram.ENCODING_HEADER_SIZE
	// The generator writes 3 digits. More would let a few bytes of a document claim 50 MB.
	maxDigits = 3
	// maxHistogram is what 3 digits over all of int64 can take at most, in bytes.
	maxHistogram = 1 << 20
)

// DecodeHistogram reads an HdrHistogram in its V2 encoding, compressed or not, in base64. lateen-load writes the latter, which
// the library does not take: it is wrapped as the former. Values are nanoseconds.
func DecodeHistogram(text string) (*hdrhistogram.Histogram, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	plain, err := inflated(raw)
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	if len(plain) < headerBytes || binary.BigEndian.Uint32(plain)&^cookieBits != cookiePlain {
		return nil, errors.New("histogram: not HdrHistogram's V2 encoding")
	}
	if digits := binary.BigEndian.Uint32(plain[12:]); digits > maxDigits {
		return nil, fmt.Errorf("histogram: %d digits; the lab writes %d", digits, maxDigits)
	}
	// An unbounded histogram says so with a highest value that is no int64.
	if binary.BigEndian.Uint64(plain[24:]) > math.MaxInt64 {
		binary.BigEndian.PutUint64(plain[24:], math.MaxInt64)
	}
	h, err := hdrhistogram.Decode(wrapped(plain))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return h, nil
}

func inflated(raw []byte) ([]byte, error) {
	if len(raw) < 8 || binary.BigEndian.Uint32(raw)&^cookieBits != cookieCompressed {
		return raw, nil
	}
	z, err := zlib.NewReader(bytes.NewReader(raw[8:]))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	plain, err := io.ReadAll(io.LimitReader(z, maxHistogram+1))
	if err == nil && len(plain) > maxHistogram {
		err = fmt.Errorf("more than %d bytes", maxHistogram)
	}
	return plain, err
}

func wrapped(plain []byte) []byte {
	var body bytes.Buffer
	z, err := zlib.NewWriterLevel(&body, zlib.NoCompression)
	if err != nil {
		panic("zlib: " + err.Error()) // the level is a constant
	}
	_, _ = z.Write(plain) // a buffer takes everything
	_ = z.Close()
	out := binary.BigEndian.AppendUint32(nil, cookieCompressed)
	out = binary.BigEndian.AppendUint32(out, uint32(body.Len()))
	return []byte(base64.StdEncoding.EncodeToString(append(out, body.Bytes()...)))
}

// pool merges the response times of a plane's blocks that count. It is nil where there are none; unread counts histograms
// that could not be read.
func pool(blocks []results.Block, plane string) (pooled *hdrhistogram.Histogram, unread int) {
	for i := range blocks {
		b := &blocks[i]
		if b.Plane != plane || !b.Counted() || b.Histogram == "" {
			continue
		}
		h, err := DecodeHistogram(b.Histogram)
		if err != nil {
			unread++
			continue
		}
		if pooled == nil {
			pooled = hdrhistogram.New(1, math.MaxInt64, maxDigits)
		}
		pooled.Merge(h)
	}
	if pooled != nil && pooled.TotalCount() == 0 {
		pooled = nil
	}
	return pooled, unread
}

const perMillisecond = 1e6 // nanoseconds

// percentile of a pooled sample in ms; ok is false where fewer than stats.MinBeyond samples lie beyond it.
func percentile(h *hdrhistogram.Histogram, q float64) (ms float64, ok bool) {
	if h == nil || !stats.Printable(q, uint64(h.TotalCount())) {
		return 0, false
	}
	return float64(h.ValueAtPercentile(100*q)) / perMillisecond, true
}

// exactRanks is the sample size up to which ranks are counted out; above it the normal approximation is as good.
const exactRanks = 20_000

// percentileInterval is the 95 % interval of a percentile by order statistics, in ms: what another sample of this very
// experiment would give, not what another run would.
func percentileInterval(h *hdrhistogram.Histogram, q float64) (low, high float64) {
	n := h.TotalCount()
	var from, to float64
	if n <= exactRanks {
		l, u := stats.QuantileRanks(int(n), q)
		from, to = float64(l), float64(u)
	} else {
		half := 1.96 * math.Sqrt(float64(n)*q*(1-q))
		from, to = math.Floor(float64(n)*q-half), math.Ceil(float64(n)*q+half)+1
	}
	at := func(rank float64) float64 {
		return float64(h.ValueAtPercentile(100*min(1, max(0, rank/float64(n))))) / perMillisecond
	}
	return at(from), at(to)
}

// shareBetween is the share of response times from a to b milliseconds.
func shareBetween(h *hdrhistogram.Histogram, a, b float64) float64 {
	if h == nil || h.TotalCount() == 0 {
		return 0
	}
	var within int64
	for _, bar := range h.Distribution() {
		if ms := float64(bar.From) / perMillisecond; ms >= a && ms < b {
			within += bar.Count
		}
	}
	return float64(within) / float64(h.TotalCount())
}
