package api

import "time"

// CAStatus is how it stands with the mesh's certificate authority, as the control plane says.
type CAStatus struct {
	Source  string     `json:"source,omitempty"` // the directory of a plugged-in CA
	Signing string     `json:"signing"`          // the subject of the certificate that others are signed with
	Expires time.Time  `json:"expires"`          // the first certificate between its key and the root
	Trusted []CARoot   `json:"trusted"`          // the roots that proxies are told to trust
	Stage   string     `json:"stage,omitempty"`  // of root rotation: "steady", "publishing" or "dropping"; empty with a plugged-in CA
	Since   time.Time  `json:"since,omitzero"`   // when the stage began
	Behind  int        `json:"behind,omitempty"` // certificates from before the stage that are in use, as far as is known
	Waiting []CAHolder `json:"waiting,omitempty"`
	Known   time.Time  `json:"known,omitzero"`  // till then there may be further ones that nobody remembers
	Latest  time.Time  `json:"latest,omitzero"` // when the stage ends at the latest
	Trouble string     `json:"trouble,omitempty"`
	// Of several control planes the one that leads moves the stages, and knows why the next one does not begin although it is time.
	Leads bool   `json:"leads,omitempty"`
	Held  string `json:"held,omitempty"`
}

// CARoot is a root certificate.
type CARoot struct {
	Subject string    `json:"subject"`
	Expires time.Time `json:"expires"`
}

// CAHolder is an identity in one node proxy.
type CAHolder struct {
	Node     string `json:"node"`
	Identity string `json:"identity"`
}

// The stages of root rotation.
const (
	CASteady     = "steady"
	CAPublishing = "publishing"
	CADropping   = "dropping"
)
