// Package archtest holds the rules of the repository as tests: which part may depend on which, which licences come in,
// and what no committed file may contain. It has no code of its own.
package archtest
