package rest

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/lab/stats"
)

// told are the percentiles that a run is expected to have.
var told = []struct {
	name string
	q    float64
}{{"P50", .5}, {"P90", .9}, {"P99", .99}}

// Expectation says before a run which percentiles it will lack, and how long they would take at its rate. It is empty for a run
// that will have all of them.
func (r *Request) Expectation() string {
	if r.Exactly == 0 && r.QPS < 0 {
		return fmt.Sprintf("P99 needs %s answers.", thousands(stats.Samples(.99)))
	}
	if r.Exactly == 0 && r.Duration < 0 {
		return ""
	}
	answers := uint64(r.Exactly)
	if r.Exactly == 0 {
		answers = uint64(r.QPS * r.Duration.Seconds())
	}
	var missing []string
	for _, p := range told {
		if stats.Printable(p.q, answers) {
			continue
		}
		text := fmt.Sprintf("%s needs %s answers", p.name, thousands(stats.Samples(p.q)))
		if r.Exactly == 0 {
			text = fmt.Sprintf("%s needs %s at this rate", p.name, lasting(float64(stats.Samples(p.q))/r.QPS))
		}
		missing = append(missing, text)
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("About %s answers are expected: %s.", thousands(answers), strings.Join(missing, ", "))
}

// lasting writes seconds as people do who plan a run: "100 s", "17 min", "2.8 h".
func lasting(seconds float64) string {
	switch {
	case seconds < 600:
		return strconv.FormatFloat(math.Ceil(seconds), 'f', 0, 64) + " s"
	case seconds < 5400:
		return strconv.FormatFloat(math.Ceil(seconds/60), 'f', 0, 64) + " min"
	}
	return strconv.FormatFloat(seconds/time.Hour.Seconds(), 'f', 1, 64) + " h"
}

// thousands writes a number with a comma before each three digits.
func thousands(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// apiExpect is GET /api/expect: which percentiles a run with these keys will lack. It starts nothing, and takes no target.
func (s *Server) apiExpect(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	query.Set("url", "http://localhost/")
	asked, err := ParseRequest(query, nil)
	if err != nil {
		refuseForm(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]any{"says": asked.Expectation()})
}
