package report

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lateen.dev/lateen/internal/lab/results"
)

// encoded is a histogram of milliseconds as a document holds it.
func encoded(milliseconds ...float64) string {
	h := hdrhistogram.New(1, math.MaxInt64, 3)
	for _, ms := range milliseconds {
		if err := h.RecordValue(int64(ms * 1e6)); err != nil {
			panic(err)
		}
	}
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// The file is what lateen-load wrote to --json: the Rust library's V2 encoding beside the numbers that it read from the same
// histogram.
func TestHistogramsOfTheGeneratorAreRead(t *testing.T) {
	text, err := os.ReadFile("testdata/lateen-load.json")
	if err != nil {
		t.Fatal(err)
	}
	var runs map[string]map[string]struct {
		Count                   int64
		Min, P50, P75, P90, P99 float64
		P999                    float64 `json:"p99.9"`
		Max, Avg                float64
		Histogram               string
	}
	if err := json.Unmarshal(text, &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 {
		t.Fatalf("%d runs in the file", len(runs))
	}
	for name, times := range runs {
		for which, s := range times {
			h, err := DecodeHistogram(s.Histogram)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, which, err)
			}
			if h.TotalCount() != s.Count {
				t.Errorf("%s, %s: %d values, want %d", name, which, h.TotalCount(), s.Count)
			}
			for q, want := range map[float64]float64{50: s.P50, 75: s.P75, 90: s.P90, 99: s.P99, 100: s.Max} {
				if got := float64(h.ValueAtPercentile(q)) / perMillisecond; math.Abs(got-want) > 0.002*want+2e-5 {
					t.Errorf("%s, %s: P%v is %v, the generator says %v", name, which, q, got, want)
				}
			}
		}
	}
}

func TestHistogramsThatAreNoneAreRefused(t *testing.T) {
	good, err := base64.StdEncoding.DecodeString(encoded(1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := inflated(good)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := func(at int, b byte) string {
		text := append([]byte(nil), plain...)
		text[at] = b
		return base64.StdEncoding.EncodeToString(text)
	}
	if _, err := DecodeHistogram(base64.StdEncoding.EncodeToString(plain)); err != nil {
		t.Fatalf("uncompressed: %v", err)
	}
	for name, text := range map[string]string{
		"no base64":       "***",
		"empty":           "",
		"another cookie":  spoilt(0, 0xff),
		"too many digits": spoilt(15, 5),
		"cut":             base64.StdEncoding.EncodeToString(plain[:len(plain)-1]),
		"header only":     base64.StdEncoding.EncodeToString(plain[:20]),
		"half compressed": base64.StdEncoding.EncodeToString(good[:len(good)-6]),
	} {
		if _, err := DecodeHistogram(text); err == nil || !strings.HasPrefix(err.Error(), "histogram: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOnlyBlocksThatCountArePooled(t *testing.T) {
	blocks := []results.Block{
		{Plane: "none", Histogram: encoded(1, 1, 1)},
		{Plane: "none", Histogram: encoded(2)},
		{Plane: "none", Histogram: encoded(900), Rejected: []string{"steal 0.2"}},
		{Plane: "lateen", Histogram: encoded(900)},
		{Plane: "none", Histogram: "?"},
	}
	h, unread := pool(blocks, "none")
	if h == nil || h.TotalCount() != 4 || unread != 1 {
		t.Fatalf("got %v, %d unread", h, unread)
	}
	if s := shareBetween(h, 0.9, 1.5); s != 0.75 {
		t.Errorf("share around 1 ms: %v", s)
	}
	if _, ok := percentile(h, 0.5); ok {
		t.Error("a percentile of four samples was given")
	}
	if h, _ := pool(blocks, "ztunnel"); h != nil {
		t.Error("a plane without blocks has a distribution")
	}
}

func FuzzDecodeHistogram(f *testing.F) {
	f.Add(encoded(0.1, 40, 1000))
	f.Add("HISTFAAAAAB42pNpmSzMwMDAxQABzFCaEUoz2X+AMIB8Ah0=")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := DecodeHistogram(text)
		if err != nil {
			return
		}
		if h.TotalCount() < 0 || h.ValueAtPercentile(50) > h.Max() {
			t.Fatalf("%d values, median %d above %d", h.TotalCount(), h.ValueAtPercentile(50), h.Max())
		}
		percentileInterval(h, 0.99)
		shareBetween(h, 35, 60)
	})
}
