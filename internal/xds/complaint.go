package xds

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"lateen.dev/lateen/internal/resourcelog"
)

// Limits of a client's own words: maxComplaint bytes of one refusal, of which maxRead are looked through for names, and maxLabel
// bytes of a name it gives. A line that tells of a refusal lists maxListed names.
const (
	maxComplaint = 4 << 10
	maxRead      = 256 << 10
	maxLabel     = 256
	maxListed    = 100
)

// Nack is a client's refusal of a response.
type Nack struct {
	At      time.Time `json:"at"`
	Nonce   string    `json:"nonce"`
	Message string    `json:"message"`
	// Names are the resources that the client complained about by name, or the only one of the response.
	Names []string `json:"names"`
	// Unnamed are the others of the response if the complaint may mean them, too. There may be very many.
	Unnamed []string `json:"-"`
	// Others is how many these are.
	Others int `json:"others,omitempty"`
}

// String renders the refusal for a log line.
func (n *Nack) String() string {
	return fmt.Sprintf("%s: %s (%s)", n.Nonce, n.Message, strings.Join(n.listed(), ", "))
}

// listed are the names for a line.
func (n *Nack) listed() []string {
	if more := len(n.Names) - maxListed; more > 0 {
		return append(n.Names[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return n.Names
}

// complaint reads a client's error about a response with the resources names.
func complaint(e *rpcstatus.Status, names []string) *Nack {
	n := &Nack{Message: clip(e.GetMessage(), maxComplaint)}
	var whole bool
	n.Names, whole = violated(e, names)
	if !whole {
		cut := len(e.GetMessage()) > maxRead
		found, text := blamed(clip(e.GetMessage(), maxRead), names)
		// Details that leave something open are not made whole by a text that lists the first of the same.
		whole = text && !cut && len(n.Names) == 0
		n.Names = append(n.Names, found...)
		slices.Sort(n.Names)
		n.Names = slices.Compact(n.Names)
	}
	switch {
	case whole:
	case len(names) == 1:
		n.Names = names // there is nothing else that it could mean
	default:
		n.Unnamed = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, found := slices.BinarySearch(n.Names, name)
			return found
		})
		n.Others = len(n.Unnamed)
	}
	return n
}

// violated finds the resources that a client names in the details of its error, as the fields of a BadRequest, which is how our proxy
// names all that there is room for; one without a field stands for the rest. whole says that there is no rest.
func violated(e *rpcstatus.Status, names []string) (found []string, whole bool) {
	violations := 0
	of := map[string]bool{}
	for _, n := range names {
		of[n] = true
	}
	for _, detail := range e.GetDetails() {
		request := &errdetails.BadRequest{}
		if !detail.MessageIs(request) || detail.UnmarshalTo(request) != nil {
			continue
		}
		for _, v := range request.GetFieldViolations() {
			violations++
			if of[v.GetField()] {
				found = append(found, v.GetField())
			}
		}
	}
	// One that is no resource of the response, be it the rest's or of another meaning, leaves open what it is about.
	whole = violations > 0 && violations == len(found)
	slices.Sort(found)
	return slices.Compact(found), whole
}

// others is how a text ends that does not name everything. In the middle of it the same words are about something else.
var others = regexp.MustCompile(`\band \d+ (more|others?)\W*$`)

// blamed finds which of a response's resources a client's complaint speaks of. One that names none, or ends in how many more there are,
// may mean any other.
func blamed(message string, names []string) (found []string, whole bool) {
	m := newMentions(names)
	whole = m.read(message)
	found = m.found()
	return found, whole && len(found) > 0 && !others.MatchString(message)
}

// mentions finds the names that a text speaks of, as Mentions does, in one pass over the text: a response may have very many resources
// and a complaint as many parts.
type mentions struct {
	names, sorted []string
	begins        [256]bool // the bytes with which names begin
	longest       int
	seen          map[string]bool
	looked        int // how often a part of the text was looked up
}

// maxLooked is how many look-ups one byte of a text is worth on average. A name needs one for each of its parts, which are far longer.
const maxLooked = 4

func newMentions(names []string) *mentions {
	m := &mentions{names: names, sorted: slices.Sorted(slices.Values(names)), seen: map[string]bool{}}
	for _, n := range names {
		if n != "" {
			m.begins[n[0]] = true
			m.longest = max(m.longest, len(n))
		}
	}
	return m
}

// read reads a text. It gives up, and says so, on one that would take more than a few look-ups for each of its bytes.
func (m *mentions) read(text string) (whole bool) {
	most := m.looked + maxLooked*len(text)
	for at := range len(text) {
		if !m.begins[text[at]] || endsInName(text[:at]) {
			continue
		}
		// A name ends where a part of the text does. The names that begin with what was looked up follow it in their order.
		for end := at + 1; end <= len(text); end++ {
			if end-at > m.longest {
				break
			}
			if end < len(text) && nameByte(text[end]) {
				continue
			}
			if m.looked++; m.looked > most {
				return false
			}
			part := text[at:end]
			i, known := slices.BinarySearch(m.sorted, part)
			if known && !beginsInName(text[end:]) {
				m.seen[part] = true
			}
			for known && i < len(m.sorted) && m.sorted[i] == part {
				i++
			}
			if i == len(m.sorted) || !strings.HasPrefix(m.sorted[i], part) {
				break
			}
		}
	}
	return true
}

// found are the names that were read, in the order in which they were given.
func (m *mentions) found() (found []string) {
	for _, n := range m.names {
		if m.seen[n] {
			found = append(found, n)
		}
	}
	return found
}

// Mentions says whether a text speaks of a resource by its whole name: what speaks of shop/web-2 does not speak of shop/web.
func Mentions(text, name string) bool {
	for at := 0; name != ""; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		before, after := text[:at+i], text[at+i+len(name):]
		if !endsInName(before) && !beginsInName(after) {
			return true
		}
		at += i + 1
	}
	return false
}

func nameByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-_~/", c) >= 0
}

func endsInName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	return s != "" && nameByte(s[len(s)-1])
}

func beginsInName(s string) bool {
	s = strings.TrimPrefix(s, ".")
	return s != "" && nameByte(s[0])
}

// clip takes in what a client wrote: cut to a number of bytes at a whole character, and in one line without anything that would
// command the terminal or mislead the reader to whom it is shown.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s[:min(len(s), most)], "")
	return strings.Clone(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s))
}

// complaints are what a client of one type did not take.
type complaints struct {
	last *Nack
	// refused are the names whose last version the client did not take, or may not have taken.
	refused map[string]refusal
}

// refusal is a client's complaint about one version of a resource.
type refusal struct {
	nack    *Nack
	version string
	named   bool // else it may mean this one
}

// take records a complaint about the versions that a response brought.
func (c *complaints) take(nack *Nack, versions map[string]string) {
	c.last = nack
	for _, name := range nack.Names {
		c.refused[name] = refusal{nack, versions[name], true}
	}
	for _, name := range nack.Unnamed {
		c.refused[name] = refusal{nack, versions[name], false}
	}
}

// open lists the complaints that still hold, each with the names for which it does. One about a version that is no longer the mesh's is
// over, although the client has not answered for the next yet. get returns the present version of a resource.
func (c *complaints) open(get func(name string) *resourcelog.Resource) []Nack {
	var out []Nack
	at := map[*Nack]int{}
	for _, name := range slices.Sorted(maps.Keys(c.refused)) {
		nack := c.refused[name].nack
		if r := get(name); r == nil || r.Version != c.refused[name].version {
			continue
		}
		i, known := at[nack]
		if !known {
			i = len(out)
			at[nack] = i
			out = append(out, Nack{At: nack.At, Nonce: nack.Nonce, Message: nack.Message})
		}
		if c.refused[name].named {
			out[i].Names = append(out[i].Names, name)
			continue
		}
		out[i].Unnamed = append(out[i].Unnamed, name)
		out[i].Others++
	}
	return out
}
