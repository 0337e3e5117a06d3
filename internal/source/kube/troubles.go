package kube

import (
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/source/files"
)

// troubles are why a kind cannot be followed, by what was tried. An API server that is away is not among them: that is nobody's own.
type troubles struct {
	by map[string]string // "list", "watch", "find" → a sentence
}

func (t *troubles) set(verb, text string) {
	if t.by == nil {
		t.by = map[string]string{}
	}
	t.by[verb] = text
}

// because is what to say behind the kind's name.
func (t *troubles) because() string {
	for _, text := range t.texts() {
		return ": " + text
	}
	return ""
}

// texts are the sentences, each once.
func (t *troubles) texts() []string {
	return slices.Compact(slices.Sorted(maps.Values(t.by)))
}

func (t *troubles) problems(k *kind) []files.Problem {
	var out []files.Problem
	for _, text := range t.texts() {
		out = append(out, files.Problem{Message: k.fullName() + " cannot be followed: " + text, Fix: "what was read before stays in force, and it is tried again"})
	}
	return out
}

// heard takes note of how a request ended. The source's lock is held.
func (s *Source) heard(k *kind, t *troubles, verb string, err error) {
	switch {
	case err == nil:
		s.reach.back(s)
		if len(t.by) == 0 {
			return
		}
		if delete(t.by, verb); verb == "watch" {
			clear(t.by) // who watches has listed
		}
		if len(t.by) == 0 {
			s.logger.Info("kube: "+k.fullName()+" is followed again", "resource", k.fullName())
		}
	case kube.Away(err):
		s.reach.gone(s, err)
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTimeout(err):
		// The library lists anew.
	default:
		s.reach.back(s) // it answers
		text := kube.Refusal(err, k.group, k.resource, "list", "watch")
		if own := (*unserved)(nil); text == "" || errors.As(err, &own) {
			text = kube.Cause(err)
		}
		if t.by[verb] == text {
			return
		}
		news := !slices.Contains(t.texts(), text)
		t.set(verb, text)
		switch {
		case !news:
		case apierrors.IsNotFound(err) && k.custom:
			// A definition that has just come or gone, most often. If it lasts, readiness and the page of problems say so.
			s.logger.Info("kube: "+k.fullName()+" is not served", "resource", k.fullName(), "error", text)
		default:
			s.logger.Error("kube: "+k.fullName()+" cannot be followed; what was read before stays in force, and it is tried again", "resource", k.fullName(), "error", text)
		}
	}
}

// reach is whether the API server answers.
type reach struct {
	away  bool
	since time.Time
	cause string
}

func (r *reach) gone(s *Source, err error) {
	r.cause = kube.Cause(err)
	if r.away {
		return
	}
	r.away, r.since = true, time.Now()
	s.logger.Warn("kube: the API server cannot be reached; what was read stays in force, and it is tried again", "apiServer", s.host, "error", r.cause)
}

func (r *reach) back(s *Source) {
	if !r.away {
		return
	}
	s.logger.Info("kube: the API server is back", "apiServer", s.host, "away", time.Since(r.since).Round(time.Millisecond))
	*r = reach{}
}

func (r *reach) note(host string) string {
	if !r.away {
		return ""
	}
	return "the API server " + host + " cannot be reached since " + r.since.UTC().Format(time.RFC3339) + ": " + r.cause + "; what was read before stays in force"
}
