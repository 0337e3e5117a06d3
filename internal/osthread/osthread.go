// Package osthread runs functions on threads of the kernel that end with them, for code that changes what belongs to its
// thread (a namespace, a capability). It knows nothing of what they change.
package osthread

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs fn on a thread that ends with it, waits for it, and returns its error.
func Run(fn func() error) error {
	done := make(chan error, 1)
	Go(func() {
		finished := false
		defer func() {
			// A fn that ends its goroutine (a failed test does) still answers.
			if !finished {
				done <- errors.New("the function on a thread of its own did not return")
			}
		}()
		err := fn()
		finished = true
		done <- err
	})
	return <-done
}

// Go runs fn on a thread that ends with it, and does not wait for it.
func Go(fn func()) { go onLesserThread(fn) }

// onLesserThread is never left unlocked: the runtime ends a thread whose goroutine ended while locked to it. Except for the
// process's first one, which it parks for good with all that fn changed: a namespace would stay alive, and /proc would show
// it as the whole process's. So that one is kept from work until another has done it.
func onLesserThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		onLesserThread(fn)
	}()
	<-ended
	runtime.UnlockOSThread()
}
