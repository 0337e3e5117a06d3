package ca

import "time"

// Status is how it stands with the CA, for people. Nothing in it is secret.
type Status struct {
	// Source is the directory of a plugged-in CA, or the object in the cluster that holds the CA.
	Source  string    `json:"source,omitempty"`
	Signing string    `json:"signing"`
	Expires time.Time `json:"expires"`
	Trusted []Trusted `json:"trusted"`
	// Stage of root rotation; empty for a plugged-in CA, whose roots are its operator's.
	Stage Stage     `json:"stage,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Behind is how many certificates have not been renewed since the stage began, as far as is known; Waiting names some of them.
	Behind  int      `json:"behind,omitempty"`
	Waiting []Holder `json:"waiting,omitempty"`
	// Known is when nothing is left that the program does not know to have issued: till then the stage lasts in any case, and at most till Latest.
	Known  time.Time `json:"known,omitzero"`
	Latest time.Time `json:"latest,omitzero"`
	// Trouble is why nothing is issued, or why what is on disk is not in force.
	Trouble string `json:"trouble,omitempty"`
	// Leads says that it is told by the one of several control planes that moves the stages. It alone knows why the next stage does not begin
	// although it is time, and some of the namespaces that do not have the roots of this one.
	Leads       bool     `json:"leads,omitempty"`
	Held        string   `json:"held,omitempty"`
	Unpublished []string `json:"unpublished,omitempty"`
}

// Trusted is a root that proxies are told to trust.
type Trusted struct {
	Subject string    `json:"subject"`
	Expires time.Time `json:"expires"`
}

// maxWaiting bounds how many holders a status names.
const maxWaiting = 20

// AddTrouble puts a trouble behind those that are there already; an empty one is none.
func (s *Status) AddTrouble(text string) {
	switch {
	case s.Trouble == "":
		s.Trouble = text
	case text != "":
		s.Trouble += "; " + text
	}
}

// StatusOf is what can be told of a signer alone.
func StatusOf(s *Signer, now time.Time) Status {
	out := Status{Signing: s.name, Expires: s.NotAfter()}
	if s.elsewhere == nil {
		out.Signing = s.certificate.Subject.String()
	}
	for _, r := range s.roots {
		out.Trusted = append(out.Trusted, Trusted{Subject: r.Subject.String(), Expires: r.NotAfter})
	}
	text, _ := s.trouble(now)
	out.AddTrouble(text)
	if s.lastRoot != nil && s.lastRoot.NotAfter.Before(out.Expires) {
		out.Expires = s.lastRoot.NotAfter // what warns of the end looks at this
	}
	return out
}

// Status is how it stands, for people.
func (r *Rotating) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := StatusOf(r.current, r.now())
	out.Stage, out.Since = r.state.Stage, r.state.Since
	out.AddTrouble(r.trouble)
	if r.state.Stage == Steady {
		return out
	}
	late := r.behind(r.now())
	out.Behind, out.Waiting = len(late), late[:min(len(late), maxWaiting)]
	out.Latest = r.state.latest()
	if !r.ledger.since.IsZero() {
		out.Known = r.ledger.since.Add(r.state.Lifetime)
	}
	return out
}
