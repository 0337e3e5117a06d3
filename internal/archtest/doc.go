// Package archtest holds the rules of the repository as tests: which part may depend on which, which licences come in,
// what no committed file may contain, and what a run against an unmodified ztunnel may call a pass. It has no code of its own.
package archtest
