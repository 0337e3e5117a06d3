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

// Stream writes connections one by one, aligned: a column is as wide as its widest cell so far.
type Stream struct {
	w     io.Writer
	style term.Style
	width []int
	begun bool
	// room asks how wide a line may be now; 0 is as wide as it needs.
	room func() int
}

// streamColumns are the columns of a Stream; the last one is as wide as it needs.
var streamColumns = []string{"TIME", "NODE", "WAY", "SOURCE", "DESTINATION", "PEER", "VERDICT", "LASTED", "SENT", "RECEIVED", "WHY"}

// streamSpare are the columns that a narrow terminal goes without, the first one first. An inbound connection's destination is
// a pod, an outbound one's peer is at the other end: who, to whom, how it was decided, and why remain.
var streamSpare = []int{1, 9, 8, 5, 7, 0}

const (
	streamGap = 2
	// leastWhy is what a reason is shortened to before a column goes.
	leastWhy = 22
	// enoughWhy is what it gets before names keep their middle.
	enoughWhy = 40
)

// NewStream returns a stream whose columns for the two ends begin with at least these widths, in characters.
func NewStream(w io.Writer, style term.Style, source, destination int) *Stream {
	s := &Stream{w: w, style: style, width: make([]int, len(streamColumns))}
	for i, name := range streamColumns {
		s.width[i] = len(name)
	}
	s.width[0] = len(time.TimeOnly)
	s.width[3], s.width[4] = max(s.width[3], source), max(s.width[4], destination)
	return s
}

// Write adds one line. What is counted is told from the client's view.
func (s *Stream) Write(c api.Connection, now time.Time) error {
	if !s.begun {
		s.begun = true
		if err := s.line(streamColumns, func(_ int, cell string) string { return s.style.Bold(cell) }); err != nil {
			return err
		}
	}
	verdict, paint := s.verdict(c)
	cells := []string{now.Format(time.TimeOnly), c.Node, way(c), EndName(c.Source, ""), Destination(c), Peer(c), verdict,
		Lasted(c.Seconds), Bytes(c.BytesReceived), Bytes(c.BytesSent), why(c)}
	return s.line(cells, func(column int, cell string) string {
		switch {
		case column == 6:
			return paint(cell)
		case column < 2 || column == len(cells)-1:
			return s.style.Faint(cell)
		}
		return cell
	})
}

// Within makes lines no wider than what room says each time: columns of less weight go, then names and reasons lose their
// middle. A room of 0 has no bounds.
func (s *Stream) Within(room func() int) *Stream {
	s.room = room
	return s
}

// Missed says that connections were not seen.
func (s *Stream) Missed(node string, count uint64) error {
	_, err := fmt.Fprintf(s.w, "%s %s told of %d events more than were read in time\n", s.style.Warn(term.MarkWarn), node, count)
	return err
}

func (s *Stream) line(cells []string, paint func(column int, cell string) string) error {
	for i, cell := range cells {
		if i < len(cells)-1 { // the last column has no others to align
			s.width[i] = max(s.width[i], utf8.RuneCountInString(cell))
		}
	}
	width := s.fit(utf8.RuneCountInString(cells[len(cells)-1]))
	var b strings.Builder
	for i, cell := range cells {
		if width[i] == 0 {
			continue
		}
		if cell == "" {
			cell = "-"
		}
		cell = shortened(cell, width[i])
		length := utf8.RuneCountInString(cell)
		// Colours have no width: they are put on after the room is known.
		pad := ""
		if i < len(cells)-1 {
			pad = strings.Repeat(" ", width[i]-length+streamGap)
		}
		if i >= 7 && i <= 9 {
			b.WriteString(strings.TrimSuffix(pad, "  ") + paint(i, cell) + "  ")
		} else {
			b.WriteString(paint(i, cell) + pad)
		}
	}
	_, err := fmt.Fprintln(s.w, strings.TrimRight(b.String(), " "))
	return err
}

// fit returns how wide each column is for a line whose last cell is this long; 0 leaves a column out.
func (s *Stream) fit(last int) []int {
	width := slices.Clone(s.width)
	end := len(width) - 1
	width[end] = max(last, 1)
	room := 0
	if s.room != nil {
		room = s.room()
	}
	if room <= 0 {
		return width
	}
	least := func(i int) int {
		switch i {
		case 3, 4, 5:
			return min(width[i], leastName)
		case end:
			return min(width[i], leastWhy)
		}
		return width[i]
	}
	total := func(of func(int) int) int {
		sum := -streamGap
		for i := range width {
			if width[i] > 0 {
				sum += of(i) + streamGap
			}
		}
		return sum
	}
	// Which columns there are must not depend on the reason of one line.
	width[end] = leastWhy
	for _, i := range streamSpare {
		if total(least) > room {
			width[i] = 0
		}
	}
	// Nor how wide the names are: all lines leave a reason the same room.
	width[end] = enoughWhy
	for total(func(i int) int { return width[i] }) > room {
		widest := -1
		for _, i := range []int{3, 4, 5} {
			if width[i] > least(i) && (widest < 0 || width[i] > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		width[widest]--
	}
	width[end] = max(1, room-total(func(i int) int { return width[i] })+enoughWhy)
	return width
}

func (s *Stream) verdict(c api.Connection) (string, func(string) string) {
	switch {
	case c.Denied():
		return "denied", s.style.Bad
	case c.Error != "":
		return "failed", s.style.Warn
	case c.Event != "closed":
		return "open", s.style.Faint
	}
	return "ok", s.style.Good
}

func why(c api.Connection) string {
	if c.Error != "" {
		return c.Error
	}
	if c.AllowedBy != "" {
		return "allowed by " + c.AllowedBy
	}
	return ""
}

func way(c api.Connection) string {
	if c.Direction == "inbound" {
		return "in"
	}
	return "out"
}

// EndName is one end of a connection: its pod where that is known, else its address; with a port if one is given.
func EndName(e api.ConnectionEnd, port string) string {
	switch {
	case e.Workload == "":
		return e.Address
	case port == "":
		return e.Namespace + "/" + e.Workload
	}
	return e.Namespace + "/" + e.Workload + ":" + port
}

// Destination is where a connection goes: for an inbound one the pod, for an outbound one what the client asked for.
func Destination(c api.Connection) string {
	if c.Direction == "inbound" {
		return EndName(c.Destination, port(c.Destination.Address))
	}
	wanted := c.Wanted
	if wanted == "" {
		wanted = c.Destination.Address
	}
	if c.Service != "" {
		name, rest, _ := strings.Cut(c.Service, ".")
		if namespace, _, found := strings.Cut(rest, ".svc."); found {
			return name + "." + namespace + ":" + port(wanted)
		}
		return c.Service + ":" + port(wanted)
	}
	if c.Destination.Workload != "" {
		return EndName(c.Destination, port(wanted))
	}
	return wanted
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// Peer is who the other side of a connection proved to be, or that nobody proved anything.
func Peer(c api.Connection) string {
	if !c.Tunnelled {
		return "plaintext"
	}
	identity := c.Destination.Identity
	if c.Direction == "inbound" {
		identity = c.Source.Identity
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(identity, "spiffe://"), "/ns/")
	return strings.Replace(path, "/sa/", "/", 1)
}

// Lasted writes a time in seconds with two or three digits that matter.
func Lasted(seconds float64) string {
	switch {
	case seconds <= 0:
		return ""
	case seconds < 0.001:
		return fmt.Sprintf("%.0fµs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1fms", seconds*1e3)
	case seconds < 100:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
