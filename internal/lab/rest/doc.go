// Package rest serves load runs over HTTP: Fortio's REST interface, an interface of its own with one page for people, and the
// runs and lab results that are stored on this machine. It measures nothing itself: every run is a child process of
// lateen-load, and what runs of the lab mean is package report's.
package rest
