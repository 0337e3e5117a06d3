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

// Way is the waypoint that a line of the memory has its object go through, empty if it goes direct. That is all the first version wrote.
func Way(line string) string { return readNote(line).way }

// LetGo is a line with the word that its object may go.
func LetGo(line string) string {
	n := readNote(line)
	return note{way: n.asked, asked: n.asked, settled: true, more: n.more}.String()
}

// Newest is the line that counts of an object of which an earlier version has another one than this version left beside its own. The earlier version wrote it
// later. In doubt it is the one that has no connection go direct.
func Newest(own, earlier string) string {
	have, other := readNote(own), readNote(earlier)
	switch {
	case other.settled:
		return earlier
	case have.settled, other.way == "" && have.way != "", other.way == have.way && other.about(have.asked):
		return own // an earlier version hears of a label late, or has the way alone
	}
	return earlier
}

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
