package compile

import (
	"log/slog"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// publisher writes results: resources into the batch that the log takes over, and conditions into the store.
type publisher struct {
	log    *resourcelog.Log
	logger *slog.Logger
	store  *model.Store
}

// emit puts a resource that was made of the source objects into the log.
func (p *publisher) emit(b *batch, typeURL, name string, aliases, parents []string, message proto.Message, sources ...model.Key) {
	r, err := p.log.Kinds().Of(typeURL).Encode(name, aliases, parents, message)
	if err != nil {
		// Only text that is not UTF-8 gets here, and no decoder lets that in. The last good version stays.
		p.logger.Error("compile: a resource was not encoded", "type", typeURL, "name", name, "error", err)
		return
	}
	for _, key := range sources {
		r.Sources = append(r.Sources, resourcelog.Source{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	}
	b.changes = append(b.changes, resourcelog.Change{Type: typeURL, Name: name, Resource: r})
}

func (p *publisher) accept(key model.Key, b *batch) {
	p.conditions(b, key, []model.Condition{translate.Accepted()})
}

// conditions tells the author of an object what became of it.
func (p *publisher) conditions(b *batch, key model.Key, conditions []model.Condition) {
	p.report(b, key, model.Report{Conditions: conditions})
}

// report does the same for an object with parents or listeners, of which each has conditions of its own.
func (p *publisher) report(b *batch, key model.Key, report model.Report) {
	if e, ok := p.store.Entry(key); ok && e.Object.Refused != "" {
		report.Conditions = []model.Condition{translate.Refused(e.Object.Refused)}
	}
	stamp := func(conditions []model.Condition) {
		for i := range conditions {
			conditions[i].Generation = b.generation
		}
	}
	stamp(report.Conditions)
	for _, p := range report.Parents() {
		stamp(p.Conditions)
	}
	for _, l := range report.Listeners() {
		stamp(l.Conditions)
	}
	p.store.SetReport(key, report)
}
