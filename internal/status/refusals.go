package status

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/log"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/xds"
)

// reasonRefused is the reason of a Programmed condition that is False.
const reasonRefused = "RefusedByProxy"

// maxRefusals bounds how many proxies one object's condition names.
const maxRefusals = 5

// refusals are the conditions of the objects of which a proxy refuses what they were made into, for as long as it does. find looks a
// resource up and may know it no more.
func refusals(clients []xds.ClientState, generation uint64, find func(typeURL, name string) *log.Resource) map[log.Source]model.Condition {
	said := map[log.Source][]string{}
	for _, client := range clients {
		for _, t := range client.Types {
			for _, nack := range t.Refused {
				for _, name := range nack.Names {
					resource := find(t.Type, name)
					if resource == nil {
						continue
					}
					text := fmt.Sprintf("the proxy of node %s refuses it: %s", client.Node, about(nack, name))
					if !nack.Named {
						text = fmt.Sprintf("the proxy of node %s refuses a response that it came in, without naming what is wrong: %s", client.Node, strings.TrimSpace(nack.Message))
					}
					text = wellknown.Written(text)
					for _, source := range resource.Sources {
						if !slices.Contains(said[source], text) {
							said[source] = append(said[source], text)
						}
					}
				}
			}
		}
	}
	out := map[log.Source]model.Condition{}
	for source, texts := range said {
		if more := len(texts) - maxRefusals; more > 0 {
			texts = append(texts[:maxRefusals:maxRefusals], fmt.Sprintf("and %d more", more))
		}
		out[source] = model.Condition{Type: wellknown.Programmed, Status: model.False, Reason: reasonRefused,
			Message: strings.Join(texts, "; "), Generation: generation}
	}
	return out
}

// about is what a complaint, whose parts stand behind semicolons, says of one of the names that it names.
func about(nack xds.Nack, name string) string {
	var parts []string
	ours := false
	for part := range strings.SplitSeq(nack.Message, "; ") {
		switch {
		case xds.Mentions(part, name):
			ours = true
		case slices.ContainsFunc(nack.Names, func(other string) bool { return xds.Mentions(part, other) }):
			ours = false
		}
		if ours {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return strings.TrimSpace(nack.Message)
	}
	return strings.TrimSpace(strings.Join(parts, "; "))
}
