// Package report compares what several proxies made of the same requests, and keeps the page of their differences. It knows no
// proxy by more than its name.
package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/client"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// Outcome is what one proxy made of a case.
type Outcome struct {
	Answer client.Answer
	// Records are what reached the upstream.
	Records []upstream.Record
}

// Kinds of outcomes.
const (
	forwards = "forwards"
	refuses  = "refuses"
	answers  = "answers"
	waits    = "waits"
	spoils   = "forwards what is invalid"
)

// forwarded are the whole requests that reached the upstream, without the closing one.
func (o Outcome) forwarded() []upstream.Record {
	var list []upstream.Record
	for _, r := range o.Records {
		if isWhole(r) {
			list = append(list, r)
		}
	}
	return list
}

// isWhole says that a record is a whole and valid request, and not the closing one.
func isWhole(r upstream.Record) bool { return !r.Partial && r.Fault == "" && !isClosing(r) }

func isClosing(r upstream.Record) bool {
	return r.Target == cases.ClosingPath && r.Method == "GET" && r.Content == "" && r.Case() == ""
}

// kind says in one word what became of a case.
func (o Outcome) kind() string {
	if slices.ContainsFunc(o.Records, func(r upstream.Record) bool { return r.Fault != "" }) {
		return spoils
	}
	switch {
	case len(o.forwarded()) > 0:
		return forwards
	case len(o.Answer.Statuses) > 0 && o.Answer.Statuses[0] >= 400, o.Answer.Reset:
		return refuses
	case len(o.Answer.Statuses) > 0:
		return answers
	case o.Answer.Closed:
		return refuses
	}
	return waits
}

// status is the first status. 0 is a reset of the stream, -1 the end of the connection, and -2 silence.
func (o Outcome) status() int {
	switch {
	case len(o.Answer.Statuses) > 0:
		return o.Answer.Statuses[0]
	case o.Answer.Reset:
		return 0
	case o.Answer.Closed:
		return -1
	}
	return -2
}

// words say what became of a case to a reader.
func (o Outcome) words() string {
	kind := o.kind()
	if kind != refuses && kind != answers {
		return kind
	}
	switch status := o.status(); status {
	case 0:
		return kind + " (reset)"
	case -1:
		return kind + " (close)"
	default:
		return fmt.Sprintf("%s (%d)", kind, status)
	}
}

// differences says how the outcome of a peer differs from ours. There are none if both are equal.
func differences(c cases.Case, ours, peer Outcome) []string {
	mine, theirs := ours.kind(), peer.kind()
	if mine != theirs {
		return []string{theirs}
	}
	if mine != forwards {
		return nil
	}
	a, b := ours.forwarded(), peer.forwarded()
	if len(a) != len(b) {
		return []string{"another number of requests"}
	}
	var parts Words
	for i := range a {
		for _, part := range []struct {
			name string
			same bool
		}{
			{"other method", a[i].Method == b[i].Method},
			{"other path", path(a[i]) == path(b[i])},
			{"other host", host(a[i]) == host(b[i])},
			{"other content", a[i].Content == b[i].Content},
			{"other fields", sameFields(c.Names, a[i], b[i])},
			{"other trailers", trailers(a[i]) == trailers(b[i])},
		} {
			if !part.same {
				parts.Add(part.name)
			}
		}
	}
	return parts
}

// path is the target in origin form: a whole URI of the host field's host is another form of it.
func path(r upstream.Record) string {
	for _, scheme := range []string{"http://", "https://"} {
		if len(r.Target) > len(scheme) && strings.EqualFold(r.Target[:len(scheme)], scheme) {
			if _, rest, found := strings.Cut(r.Target[len(scheme):], "/"); found {
				return "/" + rest
			}
		}
	}
	return r.Target
}

// host is in small letters, as hosts are compared.
func host(r upstream.Record) string { return strings.ToLower(r.Host) }

func sameFields(names []string, a, b upstream.Record) bool {
	for _, name := range names {
		between := ", "
		if name == "cookie" {
			between = "; "
		}
		if strings.Join(a.Fields[name], between) != strings.Join(b.Fields[name], between) {
			return false
		}
	}
	return true
}

func trailers(r upstream.Record) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		if strings.HasPrefix(name, "trailer ") {
			lines = append(lines, name+": "+strings.Join(r.Fields[name], ", "))
		}
	}
	return strings.Join(lines, "\n")
}
