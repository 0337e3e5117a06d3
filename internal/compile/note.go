package compile

import "strings"

// note is a line of the memory about an object: the waypoint that its connections go through, empty if they go direct, and the one that its labels asked for
// when the line was written. settled says that the object may go to the asked one, as a control plane has heard from its proxies.
type note struct {
	way, asked string
	settled    bool
}

// settledWord ends a line that is settled.
const settledWord = "bound"

// readNote reads a line. An older control plane wrote the way alone.
func readNote(text string) note {
	way, rest, _ := strings.Cut(text, " ")
	asked, word, _ := strings.Cut(rest, " ")
	return note{way: way, asked: asked, settled: word == settledWord}
}

// settledNote lets an object go to the waypoint that it asks for.
func settledNote(asked string) note { return note{way: asked, asked: asked, settled: true} }

func (n note) String() string {
	text := n.way + " " + n.asked
	if n.settled {
		text += " " + settledWord
	}
	return text
}

// about says whether the line was written for objects that ask for a waypoint.
func (n note) about(asked string) bool { return n.asked == "" || n.asked == asked }

// letsGo says whether the line lets an object go to the waypoint that it asks for.
func (n note) letsGo(asked string) bool { return n.settled && n.asked == asked }

// after is the line that replaces an earlier one. What that knows is kept: that the object may go, or that its connections do not go direct any more. A
// control plane may not have heard of that.
func (n note) after(before note) note {
	switch {
	case before.letsGo(n.asked):
		return before
	case n.way == "":
		return note{way: before.way, asked: n.asked}
	}
	return n
}
