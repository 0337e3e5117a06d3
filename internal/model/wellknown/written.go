package wellknown

import "regexp"

// mark is what the compiler adds to the name of a policy on the wire, and what may stand after it. No object's name has a tilde.
var mark = regexp.MustCompile(`~[0-9a-f]{8}([^-_~/0-9A-Za-z]|$)`)

// Written returns a text for people: policies are named in it as their authors wrote them and not as on the wire.
func Written(text string) string { return mark.ReplaceAllString(text, "$1") }
