package demo

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/engine/api"
)

// Wire is what a recording between the nodes proves.
type Wire struct {
	Encrypted []api.CapturedConn `json:"encrypted"` // every byte seen belongs to a TLS record
	Readable  []api.CapturedConn `json:"readable"`  // plaintext on connections opened while recording
	Older     []api.CapturedConn `json:"older"`     // plaintext on connections that were open before
	Empty     int                `json:"empty"`     // no payload seen
	Dropped   int                `json:"dropped"`   // packets the recording missed
}

// JudgeWire sorts recorded connections between pods and tunnels by what an eavesdropper could read.
func JudgeWire(report api.CaptureReport) Wire {
	w := Wire{Dropped: report.Dropped}
	for _, c := range report.Connections {
		switch {
		case c.Class == api.ClassEmpty:
			w.Empty++
		case c.Class == api.ClassTLS:
			w.Encrypted = append(w.Encrypted, c)
		case c.SawSYN:
			w.Readable = append(w.Readable, c)
		default:
			w.Older = append(w.Older, c)
		}
	}
	return w
}

// Unexplained returns the plaintext connections of a mesh that should have none: those opened while recording, and older
// ones that the agents do not list as opened before enrolment.
func (w Wire) Unexplained(known []api.Conn) []api.CapturedConn {
	open := map[[2]string]bool{}
	for _, c := range known {
		open[[2]string{c.Local, c.Remote}] = true
		open[[2]string{c.Remote, c.Local}] = true
	}
	unexplained := slices.Clone(w.Readable)
	for _, c := range w.Older {
		if !open[[2]string{c.Src, c.Dst}] {
			unexplained = append(unexplained, c)
		}
	}
	return unexplained
}

// FirstLine is the first line of a connection's recorded bytes as an eavesdropper would read it; unprintable bytes are
// shown as dots.
func FirstLine(c api.CapturedConn) string {
	line, _, _ := strings.Cut(string(c.Sample), "\r\n")
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, line)
	const most = 80
	if len(printable) > most {
		printable = printable[:most] + "..."
	}
	return printable
}

// side names one end of a recorded connection: the pod if it is one, else the node.
func side(pod, node, address string) string {
	switch {
	case pod != "":
		return pod
	case node != "":
		return "node " + node
	}
	return address
}

func describe(c api.CapturedConn) string {
	return fmt.Sprintf("%s -> %s port %d", side(c.SrcPod, c.SrcNode, c.Src), side(c.DstPod, c.DstNode, c.Dst), c.Port)
}
