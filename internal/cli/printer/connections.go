package printer

import (
	"fmt"
	"io"
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
}

// streamColumns are the columns of a Stream; the last one is as wide as it needs.
var streamColumns = []string{"TIME", "NODE", "WAY", "SOURCE", "DESTINATION", "PEER", "VERDICT", "LASTED", "SENT", "RECEIVED", "WHY"}

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

// Missed says that connections were not seen.
func (s *Stream) Missed(node string, count uint64) error {
	_, err := fmt.Fprintf(s.w, "%s %s told of %d events more than were read in time\n", s.style.Warn(term.MarkWarn), node, count)
	return err
}

func (s *Stream) line(cells []string, paint func(column int, cell string) string) error {
	var b strings.Builder
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		length := utf8.RuneCountInString(cell)
		s.width[i] = max(s.width[i], length)
		// Colours have no width: they are put on after the room is known.
		pad := ""
		if i < len(cells)-1 {
			pad = strings.Repeat(" ", s.width[i]-length+2)
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
