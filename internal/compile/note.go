package compile

import (
	"slices"
	"strings"
)

// note is a line of the memory about an object: the waypoint that its connections go through, empty if they go direct, and the one that its labels asked for
// when the line was written. settled says that the object may go to the asked one, as a control plane has heard from its proxies.
type note struct {
	way, asked string
	settled    bool
	// more are the words of a later version, which mean nothing here. They stay in the line.
	more string
}

// settledWord stands in a line that is settled.
const settledWord = "bound"

// readNote reads a line. The first version of the memory, and the file of a control plane that is alone, have the way alone.
func readNote(text string) note {
	way, rest, _ := strings.Cut(text, " ")
	asked, words, _ := strings.Cut(rest, " ")
	n := note{way: way, asked: asked}
	more := strings.Fields(words)
	if i := slices.Index(more, settledWord); i >= 0 {
		n.settled, more = true, slices.Delete(more, i, i+1)
	}
	n.more = strings.Join(more, " ")
	return n
}

// Settled says of a line of the memory whether its object may go to the waypoint that it asks for.
func Settled(line string) bool { return readNote(line).settled }

// settledNote lets an object go to the waypoint that it asks for.
func settledNote(asked string) note { return note{way: asked, asked: asked, settled: true} }

func (n note) String() string {
	text := n.way + " " + n.asked
	if n.settled {
		text += " " + settledWord
	}
	if n.more != "" {
		text += " " + n.more
	}
	return text
}

// in says whether a line has all that the note says. It may have more.
func (n note) in(line string) bool {
	have := readNote(line)
	have.more = n.more
	return have == n
}

// about says whether the line was written for objects that ask for a waypoint.
func (n note) about(asked string) bool { return n.asked == "" || n.asked == asked }

// letsGo says whether the line lets an object go to the waypoint that it asks for.
func (n note) letsGo(asked string) bool { return n.settled && n.asked == asked }

// after is the line that replaces an earlier one. What that knows is kept: that the object may go, or that its connections do not go direct any more. A
// control plane may not have heard of that. So are words of a later version, as long as the object asks for the same waypoint.
func (n note) after(before note) note {
	switch {
	case before.letsGo(n.asked):
		return before
	case n.way == "":
		n.way = before.way
	}
	if n.asked == before.asked {
		n.more = before.more
	}
	return n
}
