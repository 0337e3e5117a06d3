// Package lifetime owns how long workload certificates may live: what the control plane starts with, and what the installer refuses before it
// puts a control plane onto a cluster. It makes no certificates.
package lifetime

import (
	"fmt"
	"time"
)

// Bounds of the lifetime of certificates, and of the shortest that a caller may ask for.
const (
	Shortest = 2 * time.Second
	Longest  = 90 * 24 * time.Hour
	Least    = time.Second
)

// Judge refuses a lifetime, or a shortest one, with the names that whoever gave them knows them by.
func Judge(name string, ttl time.Duration, leastName string, least time.Duration) error {
	if ttl < Shortest || ttl > Longest {
		return fmt.Errorf("%s is %s; use 2s to 2160h", name, ttl)
	}
	if least < Least || least > ttl {
		return fmt.Errorf("%s is %s; use 1s to %s, which is %s", leastName, least, name, ttl)
	}
	return nil
}

// JudgeOwn refuses a longest lifetime of certificates in a pod's own name, with the name that whoever gave it knows it by.
func JudgeOwn(name string, ttl time.Duration) error {
	if ttl < Shortest || ttl > Longest {
		return fmt.Errorf("%s is %s; use 2s to 2160h", name, ttl)
	}
	return nil
}
