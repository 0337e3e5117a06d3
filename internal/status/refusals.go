package status

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/xds"
)

// maxRefusals bounds how many proxies one object's condition names.
const maxRefusals = 5

// Refusals are the conditions of the objects of which a proxy refuses, or may refuse, what they were made into, for as long as it
// does. find looks a resource up and may know it no more.
//
// An object's condition is read by whoever may read the object, so it has a proxy's words only where they are about this object. All
// of them are on the page of clients, which is the operator's.
func Refusals(clients []xds.ClientState, generation uint64, find func(typeURL, name string) *resourcelog.Resource) map[resourcelog.Source]model.Condition {
	refused, partly, unnamed := map[resourcelog.Source][]string{}, map[resourcelog.Source][]string{}, map[resourcelog.Source][]string{}
	for _, client := range clients {
		for _, t := range client.Types {
			say := func(said map[resourcelog.Source][]string, name, text string) {
				resource := find(t.Type, name)
				if resource == nil {
					return
				}
				for _, source := range resource.Sources {
					if !slices.Contains(said[source], text) {
						said[source] = append(said[source], text)
					}
				}
			}
			for _, nack := range t.Refused {
				for _, name := range nack.Names {
					text := fmt.Sprintf("the proxy of node %s refuses it", client.Node)
					if why := about(nack, name); why != "" {
						text += ": " + why
					} else {
						text += " and does not say why; lateen status has what it says"
					}
					say(refused, name, wellknown.Written(text))
				}
				said, what := unnamed, "something"
				if len(nack.Names) > 0 {
					said, what = partly, "more than it names"
				}
				text := fmt.Sprintf("the proxy of node %s refuses %s of a response that this came in: whether it uses this is not known; lateen status has what it says", client.Node, what)
				for _, name := range nack.Unnamed {
					say(said, name, text)
				}
			}
		}
	}
	out := map[resourcelog.Source]model.Condition{}
	tell := func(said map[resourcelog.Source][]string, status model.Status, reason string) {
		for source, texts := range said {
			if more := len(texts) - maxRefusals; more > 0 {
				texts = append(texts[:maxRefusals:maxRefusals], fmt.Sprintf("and %d more", more))
			}
			out[source] = model.Condition{Type: wellknown.Programmed, Status: status, Reason: reason,
				Message: strings.Join(texts, "; "), Generation: generation}
		}
	}
	// The last call wins, so certain refusals come last.
	tell(unnamed, model.Unknown, wellknown.ReasonRefusalUnnamed)
	tell(partly, model.Unknown, wellknown.ReasonMayBeRefused)
	tell(refused, model.False, wellknown.ReasonRefused)
	return out
}

// remainder is the part of a complaint that counts what it does not name; it is about nothing named.
var remainder = regexp.MustCompile(`^and \d+ (more|others?)$`)

// about is what a complaint, whose parts stand behind semicolons, says of one of the names that it names; empty if that is nothing.
func about(nack xds.Nack, name string) string {
	var parts []string
	ours := false
	for part := range strings.SplitSeq(nack.Message, "; ") {
		switch {
		case xds.Mentions(part, name):
			ours = true
		case remainder.MatchString(part), slices.ContainsFunc(nack.Names, func(other string) bool { return xds.Mentions(part, other) }):
			ours = false
		}
		if ours {
			parts = append(parts, part)
		}
	}
	return strings.TrimSpace(strings.Join(parts, "; "))
}
