package printer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// Reason is why a connection got its verdict: a sentence, then shorter forms of it for terminals without room for that.
type Reason []string

// Text is the whole sentence.
func (r Reason) Text() string { return r.within(0) }

// within is the first form that fits, else the last; a room of 0 has no bounds.
func (r Reason) within(room int) string {
	if len(r) == 0 {
		return ""
	}
	for _, form := range r {
		if room == 0 || utf8.RuneCountInString(form) <= room {
			return form
		}
	}
	return r[len(r)-1]
}

// Stream writes connections one by one. Its columns are settled before its header is written: a later cell that is wider is shortened
// on a terminal, and keeps its width elsewhere.
type Stream struct {
	w        io.Writer
	style    term.Style
	home     string
	expected []api.Connection
	// room asks how wide a line may be now; 0 is as wide as it needs. The layout is for the room of the last line.
	room   func() int
	last   int
	layout *layout
}

// layout is which columns there are, how wide each is, and how names are written. A column of width 0 is not there.
type layout struct {
	names Names
	width []int
}

const (
	colTime = iota
	colNode
	colDirection
	colSource
	colDestination
	colPeer
	colVerdict
	colDuration
	colToServer
	colToClient
	colReason
)

var streamColumns = []string{"TIME", "NODE", "DIRECTION", "SOURCE", "DESTINATION", "PEER", "VERDICT", "DURATION", "TO-SERVER", "TO-CLIENT", "REASON"}

// streamSpare are the columns that a narrow terminal goes without, the first one first. The last lastToGo of them go only where
// names cannot be cut to leastName instead: both ends of a connection have a line, and without a direction the two look alike.
var streamSpare = []int{colNode, colToClient, colToServer, colPeer, colDuration, colTime, colDirection}

const lastToGo = 2

const (
	streamGap = 2
	// enoughReason is the room that a reason has before columns go, and leastReason what it keeps while any do.
	enoughReason, leastReason = 40, 26
	// An address of IPv4 is a client's name where it has no other, and one with a port a destination's.
	leastSource, leastDestination = len("255.255.255.255"), len("10.10.10.10:8080")
	// Where nothing is cut, columns are this wide for names that are not known yet.
	amplyNamed = 40
)

// NewStream returns a stream. expected are connections as they may come, which settle how wide columns are; home is the namespace
// whose name may be left out, empty if there is none.
func NewStream(w io.Writer, style term.Style, home string, expected []api.Connection) *Stream {
	return &Stream{w: w, style: style, home: home, expected: expected, room: func() int { return 0 }}
}

// Within makes lines no wider than what room says each time. The columns are settled anew, under a header of their own, when that
// changes. A room of 0 has no bounds.
func (s *Stream) Within(room func() int) *Stream {
	s.room = room
	return s
}

// Write adds one line.
func (s *Stream) Write(c api.Connection, reason Reason, now time.Time) error {
	room := s.room()
	if s.layout == nil || room != s.last {
		s.last, s.layout = room, s.settle(room)
		if err := s.line(streamColumns, func(_ int, cell string) string { return s.style.Bold(cell) }); err != nil {
			return err
		}
	}
	cells := s.cells(s.layout.names, c)
	cells[colTime], cells[colReason] = now.Format(time.TimeOnly), reason.Text()
	if room > 0 {
		cells[colReason] = reason.within(s.layout.width[colReason])
	}
	return s.line(cells, func(column int, cell string) string {
		switch column {
		case colVerdict:
			return s.paint(c.Verdict())(cell)
		case colTime, colNode, colReason:
			return s.style.Faint(cell)
		}
		return cell
	})
}

func (s *Stream) cells(names Names, c api.Connection) []string {
	toServer, toClient := Bytes(c.Bytes.ClientToServer), Bytes(c.Bytes.ServerToClient)
	if c.Event == "opened" { // the event is told before any byte is counted, and its line is written later
		toServer, toClient = "", ""
	}
	return []string{colNode: c.Node, colDirection: c.Direction, colSource: names.Source(c), colDestination: names.Destination(c), colPeer: names.Peer(c),
		colVerdict: string(c.Verdict()), colDuration: Duration(c.Seconds), colToServer: toServer, colToClient: toClient, colReason: ""}
}

func (s *Stream) paint(v api.Verdict) func(string) string {
	switch v {
	case api.Denied, api.DeniedByPeer:
		return s.style.Bad
	case api.Failed, api.Retried, api.WouldDeny:
		return s.style.Warn
	case api.OK:
		return s.style.Good
	}
	return s.style.Faint
}

// Missed says that events were lost because they were not read in time.
func (s *Stream) Missed(node string, count uint64) error {
	reader := "reader"
	if s.style.Terminal {
		reader = "terminal"
	}
	_, err := fmt.Fprintf(s.w, "%s %s: %d events dropped: %s too slow\n", s.style.Warn(term.MarkWarn), node, count, reader)
	return err
}

func (s *Stream) line(cells []string, paint func(column int, cell string) string) error {
	var b strings.Builder
	for i, cell := range cells {
		width := s.layout.width[i]
		if width == 0 {
			continue
		}
		if cell == "" {
			cell = "-"
		}
		cell = term.EscapeLine(cell)
		if s.last > 0 {
			cell = shortened(cell, width)
		}
		// Colours have no width: they are put on after the room is known.
		pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(cell)))
		if i >= colDuration && i <= colToClient {
			b.WriteString(pad + paint(i, cell))
		} else {
			b.WriteString(paint(i, cell) + pad)
		}
		b.WriteString(strings.Repeat(" ", streamGap))
	}
	_, err := fmt.Fprintln(s.w, strings.TrimRight(b.String(), " "))
	return err
}

// settle chooses the columns, their widths and the names for a room. The namespace home goes first, then the hashes of pods, then most
// columns, then the middle of names, and at last the time and the direction.
func (s *Stream) settle(room int) *layout {
	if room <= 0 {
		l := s.full(Names{})
		for _, i := range []int{colSource, colDestination, colPeer} {
			l.width[i] = max(l.width[i], amplyNamed)
		}
		return l
	}
	var gone []int
	choose := func(reason int) (*layout, bool) {
		var l *layout
		for _, names := range levels(s.home) {
			l = s.full(names)
			for _, i := range gone {
				l.width[i] = 0
			}
			if l.total()+reason <= room {
				return l, true
			}
		}
		return l, false
	}
	l, fits := choose(enoughReason)
	for !fits {
		if l, fits = choose(leastReason); fits || len(gone) == len(streamSpare) {
			break
		}
		if len(gone) >= len(streamSpare)-lastToGo && l.narrowTo(room-leastReason) {
			break
		}
		gone = streamSpare[:len(gone)+1]
	}
	// With fewer columns there may be room for more of the names.
	if better, all := choose(enoughReason); all {
		l = better
	}
	l.narrowTo(room - leastReason)
	l.width[colReason] = max(1, room-l.total())
	return l
}

// full is the layout with all columns, as wide as what is expected.
func (s *Stream) full(names Names) *layout {
	l := &layout{names: names, width: make([]int, len(streamColumns))}
	for i, name := range streamColumns[:colReason] {
		l.width[i] = len(name)
	}
	for _, c := range s.expected {
		for i, cell := range s.cells(names, c)[:colReason] {
			l.width[i] = max(l.width[i], utf8.RuneCountInString(cell))
		}
	}
	for i, least := range map[int]int{colTime: len(time.TimeOnly), colVerdict: len(api.DeniedByPeer), colSource: leastSource,
		colDestination: leastDestination, colPeer: len("plaintext"), colToServer: len("1023.9 KiB"), colToClient: len("1023.9 KiB")} {
		l.width[i] = max(l.width[i], least)
	}
	l.width[colReason] = 1
	return l
}

// total is how wide a line is without its reason.
func (l *layout) total() int {
	sum := 0
	for i, width := range l.width {
		if width > 0 && i != colReason {
			sum += width + streamGap
		}
	}
	return sum
}

// narrowTo cuts names until a line without its reason is no wider than room. It returns false if that is impossible.
func (l *layout) narrowTo(room int) bool {
	for l.total() > room {
		if !l.narrow() {
			return false
		}
	}
	return true
}

// narrow takes a character from the widest of the names; it returns false if each has as little as it can.
func (l *layout) narrow() bool {
	names := []int{colSource, colDestination, colPeer}
	widest := slices.MaxFunc(names, func(a, b int) int { return l.width[a] - l.width[b] })
	if l.width[widest] <= leastName {
		return false
	}
	l.width[widest]--
	return true
}
